"""Commands for Scrapy projects: servers, deployment, jobs, schedules, access. One file for each noun."""
