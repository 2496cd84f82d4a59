#compdef gossamer
# Completion of gossamer. Made by `python -m tools.reference`; do not edit.

_gossamer_crawls() {
    local folder=.gossamer i
    for ((i = 1; i < CURRENT; i++)); do
        [[ $words[i] == --data-dir ]] && folder=$words[i+1]
    done
    local -a names
    names=($folder/crawls/*.json(N:t:r))
    compadd -a names
}

_gossamer() {
    local command= i prev=$words[CURRENT-1]
    local -a entries
    for ((i = 2; i < CURRENT; i++)); do
        [[ $words[i] == -* ]] && continue
        if [[ -z $command ]]; then
            command=$words[i]
            case $command in new|crawls|domains|bench|schedules|versions|variables|tokens|migrate) ;; *) break ;; esac
        else
            command="$command $words[i]"
            break
        fi
    done
    case "$command $prev" in
    'crawl --seeds'|'crawl --spider'|'crawl --extract'|'crawl -o'|'crawl --output'|'crawl --assets-to'|'crawl --report'|'crawl --ca-file'|'crawl --proxy'|'crawl --data-dir'|'crawl --config') _files; return ;;
    'crawl --depth'|'crawl --max-pages'|'crawl --domain-max-pages'|'crawl --drop-parameter'|'crawl --pattern-max-pages'|'crawl --path-repeats'|'crawl --allow-domain'|'crawl --allow'|'crawl --deny'|'crawl --deny-extension'|'crawl --priority'|'crawl --expires'|'crawl --rate'|'crawl --domain-concurrency'|'crawl --concurrency'|'crawl --processes'|'crawl --field'|'crawl --each'|'crawl --unique'|'crawl --assets'|'crawl --max-assets'|'crawl --assets-max-bytes'|'crawl --chunk'|'crawl --attrs'|'crawl --resolve'|'crawl --robots-patience'|'crawl --user-agent'|'crawl --contact'|'crawl --header'|'crawl --cookie'|'crawl --secret-header'|'crawl --headers-for'|'crawl --egress'|'crawl --timeout'|'crawl --retries'|'crawl --frontier') _message value; return ;;
    'crawl --scope') compadd -- domain host path any; return ;;
    'crawl --query-order') compadd -- significant ignored; return ;;
    'crawl --text-in') compadd -- records items both; return ;;
    'crawl --crawl-id') _gossamer_crawls; return ;;
    'export --format') _message value; return ;;
    'fetch --scope') compadd -- domain host path any; return ;;
    'fetch --allow-domain'|'fetch --allow'|'fetch --deny'|'fetch --deny-extension'|'fetch --resolve'|'fetch --user-agent'|'fetch --contact'|'fetch --header'|'fetch --cookie'|'fetch --secret-header'|'fetch --headers-for'|'fetch --timeout') _message value; return ;;
    'fetch --ca-file'|'fetch --proxy'|'fetch --config') _files; return ;;
    'report -o'|'report --output'|'report --csv') _files; return ;;
    'shell --resolve'|'shell --user-agent'|'shell --contact'|'shell --header'|'shell --cookie'|'shell --secret-header'|'shell --headers-for'|'shell --timeout'|'shell --command'|'shell -c'|'shell --base-url') _message value; return ;;
    'shell --ca-file'|'shell --proxy'|'shell --config') _files; return ;;
    'why --crawl-id') _gossamer_crawls; return ;;
    'why --app'|'why --resolve'|'why --frontier') _message value; return ;;
    'why --data-dir'|'why --config') _files; return ;;
    'up --host'|'up --port'|'up --processes'|'up --concurrency'|'up --bus'|'up --prefix'|'up --contact'|'up --resolve'|'up --allow-network'|'up --frontier'|'up --platform-port') _message value; return ;;
    'up -o'|'up --output'|'up --data-dir'|'up --config'|'up --spider') _files; return ;;
    'up --log-level') compadd -- debug info warning error critical; return ;;
    'up --log-format') compadd -- human json; return ;;
    'serve --host'|'serve --port'|'serve --bus'|'serve --prefix'|'serve --allow-network'|'serve --frontier') _message value; return ;;
    'serve --data-dir'|'serve --config') _files; return ;;
    'serve --log-level') compadd -- debug info warning error critical; return ;;
    'serve --log-format') compadd -- human json; return ;;
    'worker --pool'|'worker --bus'|'worker --prefix'|'worker --concurrency'|'worker --processes'|'worker --contact'|'worker --resolve'|'worker --allow-network'|'worker --egress'|'worker --frontier') _message value; return ;;
    'worker --spider'|'worker -o'|'worker --output'|'worker --ca-file'|'worker --data-dir'|'worker --config') _files; return ;;
    'feed --bus'|'feed --prefix'|'feed --frontier') _message value; return ;;
    'feed --data-dir'|'feed --config') _files; return ;;
    'info --spider'|'info --frontier') _message value; return ;;
    'info --data-dir'|'info --config') _files; return ;;
    'stop --spider'|'stop --frontier') _message value; return ;;
    'stop --data-dir'|'stop --config') _files; return ;;
    'stats --frontier') _message value; return ;;
    'stats --data-dir'|'stats --config') _files; return ;;
    'dump --limit'|'dump --consumer'|'dump -c'|'dump --bus'|'dump --prefix'|'dump --frontier') _message value; return ;;
    'dump --data-dir'|'dump --config') _files; return ;;
    'monitor --project'|'monitor -p'|'monitor --bus'|'monitor --prefix'|'monitor --frontier') _message value; return ;;
    'monitor --data-dir'|'monitor --config') _files; return ;;
    'top --data-dir'|'top --config') _files; return ;;
    'top --metrics') _message value; return ;;
    'diagnose --data-dir'|'diagnose --config') _files; return ;;
    'diagnose --pages'|'diagnose --interval') _message value; return ;;
    'scrapyd --log-level') compadd -- debug info warning error critical; return ;;
    'scrapyd --log-format') compadd -- human json; return ;;
    'scrapyd --config'|'scrapyd --folder'|'scrapyd -d'|'scrapyd --scrapyd-conf') _files; return ;;
    'deploy --project'|'deploy -p'|'deploy --version') _message value; return ;;
    'deploy --egg'|'deploy --build') _files; return ;;
    'deploy --environment') compadd -- shared isolated; return ;;
    'schedule --target'|'schedule -t'|'schedule --project'|'schedule -p'|'schedule -a'|'schedule -s'|'schedule --version'|'schedule --priority'|'schedule --parts'|'schedule --split-as'|'schedule --column'|'schedule --processes') _message value; return ;;
    'schedule --split-file') _files; return ;;
    'jobs --target'|'jobs -t'|'jobs --project'|'jobs -p'|'jobs --spider'|'jobs --state'|'jobs --group'|'jobs --limit'|'jobs -n') _message value; return ;;
    'job --target'|'job -t'|'job --project'|'job -p'|'job --attempt') _message value; return ;;
    'job --format') compadd -- jsonl json csv xml; return ;;
    'manager --log-level') compadd -- debug info warning error critical; return ;;
    'manager --log-format') compadd -- human json; return ;;
    'manager --config'|'manager --store'|'manager --scrapyd-conf') _files; return ;;
    'manager --database'|'manager --host'|'manager --port'|'manager --node-limit'|'manager --keep-logs'|'manager --keep-items'|'manager --keep-jobs'|'manager --crawl-service') _message value; return ;;
    'node --log-level') compadd -- debug info warning error critical; return ;;
    'node --log-format') compadd -- human json; return ;;
    'node --config'|'node --folder'|'node -d') _files; return ;;
    'node --manager'|'node -m'|'node --token'|'node --slots'|'node -n'|'node --label'|'node --name'|'node --project-users') _message value; return ;;
    'project --target'|'project -t'|'project --project'|'project -p'|'project --spider'|'project --set') _message value; return ;;
    'nodes --target'|'nodes -t'|'nodes --drain'|'nodes --undrain'|'nodes --forget') _message value; return ;;
    'extract --extract'|'extract --ca-file'|'extract --proxy'|'extract --config') _files; return ;;
    'extract --field'|'extract --each'|'extract --allow-domain'|'extract --resolve'|'extract --user-agent'|'extract --contact'|'extract --header'|'extract --cookie'|'extract --secret-header'|'extract --headers-for'|'extract --timeout'|'extract --url') _message value; return ;;
    'text -o'|'text --output'|'text --config') _files; return ;;
    'text --chunk'|'text --processes') _message value; return ;;
    'text --text-in') compadd -- records items both; return ;;
    'demo --pages') _message value; return ;;
    'demo -o'|'demo --output') _files; return ;;
    'crawls list --frontier') _message value; return ;;
    'crawls list --data-dir'|'crawls list --config') _files; return ;;
    'crawls show --frontier') _message value; return ;;
    'crawls show --data-dir'|'crawls show --config') _files; return ;;
    'crawls delete --frontier') _message value; return ;;
    'crawls delete --data-dir'|'crawls delete --config') _files; return ;;
    'domains list --frontier') _message value; return ;;
    'domains list --data-dir'|'domains list --config') _files; return ;;
    'domains set --hits'|'domains set --window'|'domains set --scale'|'domains set --concurrency'|'domains set --frontier') _message value; return ;;
    'domains set --scope') compadd -- domain type ip type+ip; return ;;
    'domains set --when-blacklisted') compadd -- held dropped; return ;;
    'domains set --data-dir'|'domains set --config') _files; return ;;
    'domains remove --frontier') _message value; return ;;
    'domains remove --data-dir'|'domains remove --config') _files; return ;;
    'domains blacklist --frontier') _message value; return ;;
    'domains blacklist --data-dir'|'domains blacklist --config') _files; return ;;
    'domains load --frontier') _message value; return ;;
    'domains load --data-dir'|'domains load --config') _files; return ;;
    'domains dump --frontier') _message value; return ;;
    'domains dump --data-dir'|'domains dump --config') _files; return ;;
    'bench spider --items'|'bench spider --items-per-page'|'bench spider --links'|'bench spider --starts'|'bench spider --response-time'|'bench spider --page-bytes'|'bench spider --concurrency'|'bench spider --item-concurrency'|'bench spider --held-bytes'|'bench spider --processes'|'bench spider --pipeline-time'|'bench spider --slots'|'bench spider --api-calls'|'bench spider --api-time'|'bench spider --log-seconds') _message value; return ;;
    'bench spider --pipeline') compadd -- none wait block cpu threads store; return ;;
    'bench spider --data-dir') _files; return ;;
    'schedules list --target'|'schedules list -t'|'schedules list --project'|'schedules list -p') _message value; return ;;
    'schedules show --target'|'schedules show -t'|'schedules show --project'|'schedules show -p') _message value; return ;;
    'schedules add --target'|'schedules add -t'|'schedules add --project'|'schedules add -p'|'schedules add --cron'|'schedules add --every'|'schedules add --at'|'schedules add --time-zone'|'schedules add --jitter'|'schedules add -a'|'schedules add -s'|'schedules add --version'|'schedules add --depth'|'schedules add --max-pages') _message value; return ;;
    'schedules add --if-running') compadd -- run skip queue; return ;;
    'schedules add --missed') compadd -- skip once; return ;;
    'schedules add --crawl') _files; return ;;
    'schedules pause --target'|'schedules pause -t'|'schedules pause --project'|'schedules pause -p') _message value; return ;;
    'schedules resume --target'|'schedules resume -t'|'schedules resume --project'|'schedules resume -p') _message value; return ;;
    'schedules run --target'|'schedules run -t'|'schedules run --project'|'schedules run -p') _message value; return ;;
    'schedules remove --target'|'schedules remove -t'|'schedules remove --project'|'schedules remove -p') _message value; return ;;
    'versions list --target'|'versions list -t'|'versions list --project'|'versions list -p') _message value; return ;;
    'versions pin --target'|'versions pin -t'|'versions pin --project'|'versions pin -p') _message value; return ;;
    'versions unpin --target'|'versions unpin -t'|'versions unpin --project'|'versions unpin -p') _message value; return ;;
    'versions rollback --target'|'versions rollback -t'|'versions rollback --project'|'versions rollback -p') _message value; return ;;
    'versions delete --target'|'versions delete -t'|'versions delete --project'|'versions delete -p') _message value; return ;;
    'variables list --target'|'variables list -t'|'variables list --project'|'variables list -p') _message value; return ;;
    'variables set --target'|'variables set -t'|'variables set --project'|'variables set -p') _message value; return ;;
    'variables delete --target'|'variables delete -t'|'variables delete --project'|'variables delete -p') _message value; return ;;
    'variables rotate --target'|'variables rotate -t') _message value; return ;;
    'tokens list --target'|'tokens list -t') _message value; return ;;
    'tokens make --target'|'tokens make -t'|'tokens make --project'|'tokens make -p'|'tokens make --days') _message value; return ;;
    'tokens make --scope') compadd -- read run deploy admin node; return ;;
    'tokens release --target'|'tokens release -t') _message value; return ;;
    'tokens revoke --target'|'tokens revoke -t') _message value; return ;;
    'migrate scrapy-redis --spider'|'migrate scrapy-redis --redis'|'migrate scrapy-redis --frontier'|'migrate scrapy-redis --bot'|'migrate scrapy-redis --crawl'|'migrate scrapy-redis --queue-key'|'migrate scrapy-redis --dupefilter-key'|'migrate scrapy-redis --start-urls-key') _message value; return ;;
    'migrate scrapy-redis --config') _files; return ;;
    esac
    case $command in
    '') entries=('crawl:Crawl a site into a file, politely and completely' 'export:Convert an output of a crawl into another format' 'fetch:Fetch one page and show what a crawl would learn from it' 'report:Make a page about a crawl from its records' 'shell:Try selectors on one page, at a Python prompt' 'why:Explain the state of a URL in a crawl' 'up:Run a complete crawl service on this machine' 'serve:Run the services and the REST API without workers' 'worker:Fetch the requests that others put into a shared frontier, until Ctrl-C' 'feed:Check requests and send them to a running service' 'info:List the crawls of a running service, or show the state and the queue of an application or a crawl' 'stop:Stop a crawl' 'stats:Show counts of requests, responses, running processes and queued requests' 'dump:Print the messages of a topic, one JSON object per line, until Ctrl-C or --limit' 'monitor:Show a running crawl service until Ctrl-C; with targets, a Scrapy project'"'"'s jobs on servers' 'top:Show what the crawling processes of a data directory wait for, stage by stage, until Ctrl-C' 'diagnose:Find out what limits a crawl, what to change, and what that should give' 'scrapyd:Run Scrapy projects on this machine, in place of Scrapyd' 'deploy:Deploy the Scrapy project of this folder, and wait until its spiders are listed' 'schedule:Run a spider of a deployed project as a job, or as a group of jobs' 'jobs:List jobs, the latest first' 'job:Show one job' 'manager:Run a manager of Scrapy projects' 'node:Run the jobs of a manager elsewhere on this machine' 'project:Show the settings of a project on the server' 'nodes:List the nodes, the machines that run jobs' 'extract:Try extraction rules on one page' 'text:Extract the main content of pages, as Markdown or text, from the records of a crawl' 'completion:Print the script with which a shell completes commands, options and names of crawls' 'demo:Start a small web on this machine, crawl it, and show the result' 'new:Write a spider to start from into a new file' 'crawls:List, show and delete the crawls of a folder or of a shared frontier' 'domains:Show and change how fast each domain is fetched, and which domains are blocked' 'bench:Measure a spider that is as slow as you ask for, against a server of its own' 'schedules:List, add and change schedules' 'versions:List the deployed versions of a project, choose the one that jobs run, and delete versions' 'variables:List, set and delete the environment variables and secrets of a project' 'tokens:List, make and revoke tokens, by which persons, programs and nodes use a server' 'migrate:Import the queue of another crawler'); _describe command entries; return ;;
    'crawl')
        entries=('--help:Show the help and exit.' '--seeds:Further URLs to start from, one per line' '--depth:How many links away from the given URLs to go' '--max-pages:Stop after this many fetched pages' '--domain-max-pages:Largest number of pages of one domain' '--scope:Links to follow' --query-order:significant '--drop-parameter:Leave this query parameter out of URLs, such as ref, or utm_* for all names that begin so' '--pattern-max-pages:Largest number of pages of one pattern, in each worker process' '--path-repeats:How many segments of a link'"'"'s path may repeat earlier ones, as in /a/b/a/b, which has two' '--allow-domain:Also follow links to this domain and its subdomains' '--allow:Follow only links that match one of these regular expressions, in the URL as it is sent or as browsers show it, from the host on' '--deny:Never follow links that match one of these regular expressions, even if they match --allow' '--deny-extension:Do not follow links with one of these file extensions' '--sitemaps:Also crawl the URLs of the sitemaps, RSS and Atom feeds that robots.txt names as sitemaps' '--follow-nofollow:Also follow links that are marked nofollow' '--spider:Spider of the pages' '--priority:Priority of the given URLs' '--expires:When to drop the requests that are left' '--rate:How often to send a request to each domain, evenly spaced' '--domain-concurrency:Requests in flight per domain' '--concurrency:Requests in flight per process' '--processes:Number of worker processes' '--extract:File of extraction rules, in YAML, JSON or TOML  which items to take from the pages' '--field:Field of the items to take from the pages, as NAME=SELECTOR with @TYPE behind it if it is no text' '--each:CSS selector of one item of several on a page' '--unique:Write only the first of the items that have the same value in this field' '--assets:Also fetch files of these kinds that pages embed or link' '--max-assets:Queue at most this many assets' '--assets-max-bytes:Largest asset in bytes, decompressed' '--text:Extract the main content of each HTML page as plain text, with title, author, date and language' '--markdown:Extract the main content of each HTML page as Markdown, with headings, links, tables and code' '--chunk:Split the text or Markdown by its headings into items of at most this many characters' '--text-in:Where text and Markdown go' '-o:Where to write the pages and items' '--output:Where to write the pages and items' '--items:Write only items to the -o before this option' '--pages:Write only pages to the -o before this option' '--csv-guard:Write a single quote before each cell of a CSV file that a spreadsheet would run as a formula' '--links:List all links of each page, with their texts, in its record' '--assets-to:Folder for the assets' '--report:Write a page about the crawl at its end' '--attrs:JSON object that is copied to every record of the crawl' '--resolve:Address to use for a host instead of looking it up, as HOST ADDRESS. It may be private' '--allow-private:Permit private addresses for the hosts of the given URLs' '--ignore-robots:Neither fetch nor obey robots.txt' '--robots-patience:Seconds for which requests wait for the robots.txt of a site that answers 5xx or not at all' '--insecure:Do not verify TLS certificates' '--ca-file:PEM file of certificates to trust in addition to the system'"'"'s' '--user-agent:User-Agent header, and the name that selects the rules of robots.txt' '--contact:URL or e-mail address at which sites reach you, for example https //example.org/bot' '--header:Request header to send in addition to the usual ones' '--cookie:Cookie header' '--secret-header:Name of a request header that is sent only where the cookie is sent' '--headers-for:Domain, with its subdomains, that gets the cookie and the secret headers, besides the registered domains of the given URLs' '--proxy:Send all requests through this proxy' '--egress:Name of the public address from which this machine fetches, for budgets that are kept per address' '--timeout:Seconds for a complete request and response' '--retries:Further attempts after a temporary failure' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--crawl-id:Name of the crawl' '--fresh:Crawl a finished crawl again from the start, and empty its outputs and its folder of assets before' '--append:Keep what the outputs hold, also the records of another crawl, or with --fresh of this one' '--json:Print the result as one JSON object' '--quiet:Show neither progress nor summary' '-q:Show neither progress nor summary') ;;
    'export')
        entries=('--help:Show the help and exit.' '--items:Write only the items' '--pages:Write only the pages' '--force:Replace TO if it exists' '-f:Replace TO if it exists' '--csv-guard:Write a single quote before each cell that a spreadsheet would run as a formula' '--format:Format of standard output, such as csv' '--json:Print the result as one JSON object' '--quiet:Show neither progress nor summary' '-q:Show neither progress nor summary') ;;
    'fetch')
        entries=('--help:Show the help and exit.' '--scope:Links to follow' '--allow-domain:Also follow links to this domain and its subdomains' '--allow:Follow only links that match one of these regular expressions, in the URL as it is sent or as browsers show it, from the host on' '--deny:Never follow links that match one of these regular expressions, even if they match --allow' '--deny-extension:Do not follow links with one of these file extensions' '--follow-nofollow:Also follow links that are marked nofollow' '--resolve:Address to use for a host instead of looking it up, as HOST ADDRESS. It may be private' '--allow-private:Permit private addresses for the hosts of the given URLs' '--ignore-robots:Neither fetch nor obey robots.txt' '--insecure:Do not verify TLS certificates' '--ca-file:PEM file of certificates to trust in addition to the system'"'"'s' '--user-agent:User-Agent header, and the name that selects the rules of robots.txt' '--contact:URL or e-mail address at which sites reach you, for example https //example.org/bot' '--header:Request header to send in addition to the usual ones' '--cookie:Cookie header' '--secret-header:Name of a request header that is sent only where the cookie is sent' '--headers-for:Domain, with its subdomains, that gets the cookie and the secret headers, besides the registered domains of the given URLs' '--proxy:Send all requests through this proxy' '--timeout:Seconds for a complete request and response' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the result as one JSON object') ;;
    'report')
        entries=('--help:Show the help and exit.' '-o:Where to write the page' '--output:Where to write the page' '--force:Replace the page and the CSV files that exist' '-f:Replace the page and the CSV files that exist' '--csv:Folder for the tables as CSV files' '--json:Print the result as one JSON object' '--quiet:Show neither progress nor summary' '-q:Show neither progress nor summary') ;;
    'shell')
        [[ $words[CURRENT] != -* ]] && { _files; return; }
        entries=('--help:Show the help and exit.' '--resolve:Address to use for a host instead of looking it up, as HOST ADDRESS. It may be private' '--allow-private:Permit private addresses for the hosts of the given URLs' '--ignore-robots:Neither fetch nor obey robots.txt' '--insecure:Do not verify TLS certificates' '--ca-file:PEM file of certificates to trust in addition to the system'"'"'s' '--user-agent:User-Agent header, and the name that selects the rules of robots.txt' '--contact:URL or e-mail address at which sites reach you, for example https //example.org/bot' '--header:Request header to send in addition to the usual ones' '--cookie:Cookie header' '--secret-header:Name of a request header that is sent only where the cookie is sent' '--headers-for:Domain, with its subdomains, that gets the cookie and the secret headers, besides the registered domains of the given URLs' '--proxy:Send all requests through this proxy' '--timeout:Seconds for a complete request and response' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--command:Run this Python code instead of a prompt' '-c:Run this Python code instead of a prompt' '--base-url:URL of the page in FILE, against which its links are resolved') ;;
    'why')
        entries=('--help:Show the help and exit.' '--crawl-id:Name of the crawl' '--app:Application of the crawl' '--resolve:Address to use for a host instead of looking it up, as HOST ADDRESS. It may be private' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the result as one JSON object') ;;
    'up')
        entries=('--help:Show the help and exit.' '--host:Address at which the API listens' '--port:Port of the API. 0' '--processes:Number of worker processes' '--concurrency:Requests in flight per process' '--bus:Where requests arrive and pages are published' '--prefix:First part of the name of every topic' '-o:Where to write the pages in addition to the bus, as for gossamer crawl' '--output:Where to write the pages in addition to the bus, as for gossamer crawl' '--items:Write only items to the -o before this option' '--pages:Write only pages to the -o before this option' '--csv-guard:Write a single quote before each cell of a CSV file that a spreadsheet would run as a formula' '--contact:URL or e-mail address at which sites reach you, for example https //example.org/bot' '--resolve:Address to use for a host instead of looking it up, as HOST ADDRESS. It may be private' '--allow-network:Private networks (CIDR) in which every host may be crawled' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--log-level:Lowest level of messages that are logged to standard error' '--log-format:Format of the log' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--spider:Also work for the spider of this file' '--platform:Also run a manager and a node for Scrapy projects, as gossamer manager and gossamer node do' '--platform-port:Port of that manager') ;;
    'serve')
        entries=('--help:Show the help and exit.' '--host:Address at which the API listens' '--port:Port of the API. 0' '--bus:Where requests arrive and pages are published' '--prefix:First part of the name of every topic' '--allow-network:Private networks (CIDR) in which every host may be crawled' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--log-level:Lowest level of messages that are logged to standard error' '--log-format:Format of the log' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens') ;;
    'worker')
        entries=('--help:Show the help and exit.' '--pool:Crawls to work for' '--spider:Work only for this spider' '-o:Where to write the pages and items' '--output:Where to write the pages and items' '--items:Write only items to the -o before this option' '--pages:Write only pages to the -o before this option' '--csv-guard:Write a single quote before each cell of a CSV file that a spreadsheet would run as a formula' '--bus:Where requests arrive and pages are published' '--prefix:First part of the name of every topic' '--concurrency:Requests in flight per process' '--processes:Number of worker processes' '--contact:URL or e-mail address at which sites reach you, for example https //example.org/bot' '--resolve:Address to use for a host instead of looking it up, as HOST ADDRESS. It may be private' '--allow-network:Private networks (CIDR) in which every host may be crawled' '--ca-file:PEM file of certificates to trust in addition to the system'"'"'s' '--egress:Name of the public address from which this machine fetches, for budgets that are kept per address' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the result as one JSON object' '--quiet:Show neither progress nor summary' '-q:Show neither progress nor summary') ;;
    'feed')
        [[ $words[CURRENT] != -* ]] && { _files; return; }
        entries=('--help:Show the help and exit.' '--bus:Where requests arrive and pages are published' '--prefix:First part of the name of every topic' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the result as one JSON object' '--quiet:Show neither progress nor summary' '-q:Show neither progress nor summary') ;;
    'info')
        [[ $words[CURRENT] != -* ]] && { _gossamer_crawls; return; }
        entries=('--help:Show the help and exit.' '--spider:Only the requests of this spider' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the answer as it is sent over the bus') ;;
    'stop')
        [[ $words[CURRENT] != -* ]] && { _gossamer_crawls; return; }
        entries=('--help:Show the help and exit.' '--spider:Only the requests of this spider' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the result as one JSON object') ;;
    'stats')
        [[ $words[CURRENT] != -* ]] && { compadd -- all intake actions crawler spider machine queue rest; return; }
        entries=('--help:Show the help and exit.' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the answer as it is sent over the bus') ;;
    'dump')
        entries=('--help:Show the help and exit.' '--list:List the topics, with the number of messages in each' '--from-beginning:Start at the oldest message' '-b:Start at the oldest message' '--limit:End after this many messages' '--consumer:Read as a member of this consumer group, where it left off' '-c:Read as a member of this consumer group, where it left off' '--no-body:Omit the bodies of pages' '--just-body:Print only the bodies of pages' '--decode-base64:Print bodies in base64 as text' '-d:Print bodies in base64 as text' '--pretty:Indent each message over several lines' '-p:Indent each message over several lines' '--bus:Where requests arrive and pages are published' '--prefix:First part of the name of every topic' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:With --list') ;;
    'monitor')
        entries=('--help:Show the help and exit.' '--project:Project on the server' '-p:Project on the server' '--bus:Where requests arrive and pages are published' '--prefix:First part of the name of every topic' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--once:Show one picture and end' '--json:Print it once, as JSON') ;;
    'top')
        [[ $words[CURRENT] != -* ]] && { _files; return; }
        entries=('--help:Show the help and exit.' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--once:Show the table once and end' '--json:Print the latest figures once, as JSON' '--metrics:Also serve the figures to Prometheus at http //ADDRESS PORT/metrics, until Ctrl-C') ;;
    'diagnose')
        [[ $words[CURRENT] != -* ]] && { _files; return; }
        entries=('--help:Show the help and exit.' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--pages:Also predict the time that so many pages take' '--interval:For a log' '--json:Print the result as one JSON object') ;;
    'scrapyd')
        entries=('--help:Show the help and exit.' '--log-level:Lowest level of messages that are logged to standard error' '--log-format:Format of the log' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--folder:Work in this folder instead of the current one' '-d:Work in this folder instead of the current one' '--scrapyd-conf:Read this configuration file of Scrapyd, for example for username and password') ;;
    'deploy')
        entries=('--help:Show the help and exit.' '--project:Project on the server' '-p:Project on the server' '--version:Name of the version' '--all:Deploy to all targets of scrapy.cfg' '-a:Deploy to all targets of scrapy.cfg' '--list:List the targets of scrapy.cfg, and end' '-l:List the targets of scrapy.cfg, and end' '--egg:Send this egg or wheel instead of building one' '--environment:Where the version'"'"'s jobs run' '--build:Write the artefact into a file, and send nothing' '--quiet:Show neither progress nor summary' '-q:Show neither progress nor summary' '--json:Print the result as JSON') ;;
    'schedule')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '-a:Argument of the spider' '-s:Setting of Scrapy' '--version:Version to run' '--priority:The highest one starts first, within the project' '--split-file:Make a group of jobs, each of which gets a part of this file' '--parts:Number of parts' '--split-as:How the spider gets its part' '--column:Column with the URLs' '--processes:Make a group of so many jobs that share one frontier, the queue of a crawl' '--wait:Wait for the end' '--follow:Show the log until the end, as --wait' '-f:Show the log until the end, as --wait' '--json:Print the result as JSON') ;;
    'jobs')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Only of this project' '-p:Only of this project' '--spider:Only of this spider' '--state:Only in this state' '--group:Only of this job group' '--limit:Most jobs to show' '-n:Most jobs to show' '--all:Jobs of all projects, also inside of one' '--watch:Show the list anew every 2 seconds, until Ctrl-C' '--json:Print the result as JSON') ;;
    'job')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '--log:Print its log' '--follow:With --log' '-f:With --log' '--items:Print its items' '--format:Format of --items' '--attempt:Log or items of this attempt' '--cancel:Cancel it' '--again:Run it again, with the same arguments and settings' '--wait:Wait for its end' '--json:Print the result as JSON') ;;
    'manager')
        entries=('--help:Show the help and exit.' '--log-level:Lowest level of messages that are logged to standard error' '--log-format:Format of the log' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--store:Folder for versions, logs and items, and for the database if there is no --database' '--database:Keep the state in this database' '--host:Listen at this address' '--port:Listen at this port' '--node-limit:A node that cannot reach a manager for so long ends its jobs' '--keep-logs:Keep logs for this time' '--keep-items:Keep items for this time' '--keep-jobs:Keep ended jobs with all their files for this time' '--crawl-service:Crawl service, of gossamer up or serve, to which schedules submit crawl requests' '--scrapyd-conf:Read this configuration file of Scrapyd, for example for username and password') ;;
    'node')
        entries=('--help:Show the help and exit.' '--log-level:Lowest level of messages that are logged to standard error' '--log-format:Format of the log' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--manager:Address of a manager' '-m:Address of a manager' '--token:Token with the scope node' '--slots:Jobs at a time' '-n:Jobs at a time' '--label:Take also jobs that demand this label' '--name:Name of the node' '--folder:Folder for jobs that run, their files and code' '-d:Folder for jobs that run, their files and code' '--project-users:Run the jobs of each project as a user of its own, with a number from this range (on') ;;
    'project')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '--spider:Limits of this spider of the project' '--set:Change a setting' '--json:Print the result as JSON') ;;
    'nodes')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--drain:Give this node no more jobs' '--undrain:Give it jobs again' '--forget:Delete a node that is lost or offline' '--json:Print the result as JSON') ;;
    'extract')
        [[ $words[CURRENT] != -* ]] && { _files; return; }
        entries=('--help:Show the help and exit.' '--extract:File of extraction rules, in YAML, JSON or TOML  which items to take from the pages' '--field:Field of the items to take from the pages, as NAME=SELECTOR with @TYPE behind it if it is no text' '--each:CSS selector of one item of several on a page' '--allow-domain:Also follow links to this domain and its subdomains' '--resolve:Address to use for a host instead of looking it up, as HOST ADDRESS. It may be private' '--allow-private:Permit private addresses for the hosts of the given URLs' '--ignore-robots:Neither fetch nor obey robots.txt' '--insecure:Do not verify TLS certificates' '--ca-file:PEM file of certificates to trust in addition to the system'"'"'s' '--user-agent:User-Agent header, and the name that selects the rules of robots.txt' '--contact:URL or e-mail address at which sites reach you, for example https //example.org/bot' '--header:Request header to send in addition to the usual ones' '--cookie:Cookie header' '--secret-header:Name of a request header that is sent only where the cookie is sent' '--headers-for:Domain, with its subdomains, that gets the cookie and the secret headers, besides the registered domains of the given URLs' '--proxy:Send all requests through this proxy' '--timeout:Seconds for a complete request and response' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--url:URL of the page in FILE, for its links and the rules'"'"' urls' '--json:Print the result as one JSON object') ;;
    'text')
        entries=('--help:Show the help and exit.' '-o:Where to write the pages and items' '--output:Where to write the pages and items' '--items:Write only items to the -o before this option' '--pages:Write only pages to the -o before this option' '--csv-guard:Write a single quote before each cell of a CSV file that a spreadsheet would run as a formula' '--text:Extract the main content of each HTML page as plain text, with title, author, date and language' '--markdown:Extract the main content of each HTML page as Markdown, with headings, links, tables and code' '--chunk:Split the text or Markdown by its headings into items of at most this many characters' '--text-in:Where text and Markdown go' '--processes:Number of processes for each worker process' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--force:Replace outputs that exist' '-f:Replace outputs that exist' '--json:Print the result as one JSON object' '--quiet:Show neither progress nor summary' '-q:Show neither progress nor summary') ;;
    'completion')
        [[ $words[CURRENT] != -* ]] && { compadd -- bash zsh fish; return; }
        entries=('--help:Show the help and exit.') ;;
    'demo')
        entries=('--help:Show the help and exit.' '--pages:Number of pages of the small web' '-o:Where to write the pages' '--output:Where to write the pages' '--json:Print the result as one JSON object') ;;
    'new')
        entries=('spider:Write a small spider that runs at once, to NAME.py'); _describe command entries; return ;;
    'new spider')
        entries=('--help:Show the help and exit.') ;;
    'crawls')
        entries=('list:List the crawls of this folder, or of a shared frontier, the latest first' 'show:Show one crawl' 'delete:Delete a crawl from the frontier'); _describe command entries; return ;;
    'crawls list')
        entries=('--help:Show the help and exit.' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the result as one JSON object') ;;
    'crawls show')
        [[ $words[CURRENT] != -* ]] && { _gossamer_crawls; return; }
        entries=('--help:Show the help and exit.' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the result as one JSON object') ;;
    'crawls delete')
        [[ $words[CURRENT] != -* ]] && { _gossamer_crawls; return; }
        entries=('--help:Show the help and exit.' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--yes:Do not ask' '-y:Do not ask' '--stop:Stop the crawl first if it is not finished') ;;
    'domains')
        entries=('list:Show the default policy and the policies of all domains that have one' 'set:Change the policy of a domain, or the default' 'remove:Remove the policy of a domain, so that the default applies to it' 'blacklist:Stop fetching a domain' 'load:Replace all policies by those of a file' 'dump:Print all policies as YAML, in the form that `gossamer domains load` reads'); _describe command entries; return ;;
    'domains list')
        entries=('--help:Show the help and exit.' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the result as one JSON object') ;;
    'domains set')
        entries=('--help:Show the help and exit.' '--default:Change the policy of all domains without one' '--hits:Most requests in a window of time' '--window:Length of that window' '--scale:Factor from 0 to 1 for --hits' '--moderated:Space requests evenly, or send them as fast as the window allows' '--bursts:Space requests evenly, or send them as fast as the window allows' '--scope:Requests that share the limit' '--concurrency:Most requests in flight' '--when-blacklisted:What happens to the domain'"'"'s requests while it is blacklisted' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--json:Print the result as one JSON object') ;;
    'domains remove')
        entries=('--help:Show the help and exit.' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens') ;;
    'domains blacklist')
        entries=('--help:Show the help and exit.' '--remove:Take the domain off the blacklist' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens') ;;
    'domains load')
        [[ $words[CURRENT] != -* ]] && { _files; return; }
        entries=('--help:Show the help and exit.' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens') ;;
    'domains dump')
        entries=('--help:Show the help and exit.' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--data-dir:Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a time' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens') ;;
    'bench')
        entries=('spider:Run a Scrapy spider against a server of its own, print its figures line by line, and diagnose it'); _describe command entries; return ;;
    'bench spider')
        entries=('--help:Show the help and exit.' '--items:Items to scrape in all' '--items-per-page:Items on each detail page' '--links:Detail pages that an index page links to' '--starts:Start requests, each for a chain of index pages of its own' '--response-time:Time that the server takes for a page' '--page-bytes:Size of a page' '--concurrency:Requests in flight' '--item-concurrency:Items of a page that are in the pipeline at once' '--held-bytes:Responses in memory at which Scrapy pauses its downloads' '--processes:Processes, which share the start requests' '--pipeline:Work for each item' '--direct:Send the requests of --api-calls without Scrapy'"'"'s downloader' '--data-dir:Folder for the recordings, which gossamer top and diagnose read' '--pipeline-time:Time of the pipeline'"'"'s work for each item' '--slots:Threads of --pipeline threads, connections of store' '--api-calls:Requests to the server'"'"'s API that the pipeline sends for each item' '--api-time:Time that the server takes for one of these' '--log-seconds:Time from one line of figures to the next') ;;
    'schedules')
        entries=('list:Show the schedules of a project, with their next times' 'show:Show a schedule' 'add:Add a schedule' 'pause:Make no jobs until the schedule is resumed' 'resume:Make jobs again' 'run:Make the schedule'"'"'s job, or submit its crawl requests, now, in addition to its times' 'remove:Delete a schedule'); _describe command entries; return ;;
    'schedules list')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '--all:Schedules of all projects' '--json:Print the result as JSON') ;;
    'schedules show')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '--json:Print the result as JSON') ;;
    'schedules add')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '--cron:Minute, hour, day of the month, month, day of the week' '--every:Pause between two jobs' '--at:Time of a single job, such as 2027-03-01T04 00' '--time-zone:Zone of the cron line, such as Europe/Berlin' '--if-running:While the job before runs' '--missed:After times without a server' '--jitter:Postpone each job by up to this time' '-a:Argument of the spider' '-s:Setting of Scrapy' '--version:Version to run' '--crawl:Submit this to the server'"'"'s crawl service in place of a job' '--depth:Follow links to this depth' '--max-pages:Pages of a run at most' '--json:Print the result as JSON') ;;
    'schedules pause')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server') ;;
    'schedules resume')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server') ;;
    'schedules run')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server') ;;
    'schedules remove')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server') ;;
    'versions')
        entries=('list:Show the versions of a project, the latest last' 'pin:Make a version the default, whatever is deployed later' 'unpin:Make the latest version the default again' 'rollback:Go back to the version before the default, and pin it' 'delete:Delete a version'); _describe command entries; return ;;
    'versions list')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '--json:Print the result as JSON') ;;
    'versions pin')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server') ;;
    'versions unpin')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server') ;;
    'versions rollback')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server') ;;
    'versions delete')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '--force:Delete it although jobs or schedules use it') ;;
    'variables')
        entries=('list:Show the variables of a project' 'set:Set a variable of all jobs that start from now on' 'delete:Delete a variable or a secret' 'rotate:Encrypt the secrets of all projects anew with the first key of the server, so that it needs no other key'); _describe command entries; return ;;
    'variables list')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '--json:Print the result as JSON') ;;
    'variables set')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server' '--secret:Encrypt the value, and never show it again') ;;
    'variables delete')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Project on the server' '-p:Project on the server') ;;
    'variables rotate')
        entries=('--help:Show the help and exit.' --target:Server -t:Server) ;;
    'tokens')
        entries=('list:Show all tokens, without their secrets' 'make:Make a token, and print it' 'release:Take a node'"'"'s token from the node that used it first' 'revoke:Revoke a token, which is refused from then on'); _describe command entries; return ;;
    'tokens list')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--json:Print the result as JSON') ;;
    'tokens make')
        entries=('--help:Show the help and exit.' --target:Server -t:Server '--project:Permit this project only' '-p:Permit this project only' '--scope:What it permits' '--days:Valid for so long') ;;
    'tokens release')
        entries=('--help:Show the help and exit.' --target:Server -t:Server) ;;
    'tokens revoke')
        entries=('--help:Show the help and exit.' --target:Server -t:Server) ;;
    'migrate')
        entries=('scrapy-redis:Import the queue that a scrapy-redis spider left, so that gossamer.scrapy.redis continues with it'); _describe command entries; return ;;
    'migrate scrapy-redis')
        entries=('--help:Show the help and exit.' '--spider:The spider that left the requests' '--redis:The server that scrapy-redis used (REDIS_URL)' '--frontier:Shared frontier, the server that holds the URLs to fetch' '--config:TOML file of settings' '--verbose:Log to standard error what happens' '-v:Log to standard error what happens' '--bot:The project'"'"'s BOT_NAME, or its GOSSAMER_APPID' '--crawl:Its GOSSAMER_CRAWL_ID. Default' '--lifo:Its SCHEDULER_QUEUE_CLASS is LifoQueue' '--queue-key:Its SCHEDULER_QUEUE_KEY' '--dupefilter-key:Its SCHEDULER_DUPEFILTER_KEY' '--start-urls-key:Its REDIS_START_URLS_KEY' '--dry-run:Read everything, but change nothing' '--json:Print the result as one JSON object' '--quiet:Show neither progress nor summary' '-q:Show neither progress nor summary') ;;
    *) return 1 ;;
    esac
    _describe -o option entries
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _gossamer "$@"
else
    compdef _gossamer gossamer
fi
