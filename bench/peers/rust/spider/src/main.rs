//! Crawls a site with spider as fast as spider can. Writes a line with the URL of each page, at the end: spider hands out
//! bodies through a channel that drops pages when its reader is slower, so the comparison leaves them out.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::time::Duration;

use spider::tokio;
use spider::url::Url;
use spider::website::Website;

/// Returns the value of an option of the command line.
fn option(name: &str) -> Result<String, String> {
    let prefix = format!("--{name}=");
    std::env::args()
        .find_map(|argument| argument.strip_prefix(&prefix).map(String::from))
        .ok_or(format!("--{name} is missing"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seeds = fs::read_to_string(option("seeds")?)?;
    let seeds: Vec<&str> = seeds.split_whitespace().collect();
    let address: SocketAddr = option("address")?.parse()?;
    let hosts = seeds.iter().map(|seed| Ok(Url::parse(seed)?.host_str().unwrap_or_default().to_string()));
    let hosts: Vec<String> = hosts.collect::<Result<_, Box<dyn Error>>>()?;

    let mut website = Website::new(seeds[0]);
    website
        .with_respect_robots_txt(false)
        .with_concurrency_limit(Some(option("concurrency")?.parse()?))
        .with_danger_accept_invalid_certs(true)
        .with_request_timeout(Some(Duration::from_secs(60)));
    if seeds.len() > 1 {
        website.with_external_domains(Some(std::iter::once("*".to_string()))); // by name, it knows no hosts with a port
    }
    let mut client = website.configure_http_client_builder();
    for host in &hosts {
        client = client.resolve(host, address); // DNS does not know the names of the benchmark
    }
    website.set_http_client(client.build()?);
    website.crawl().await;

    let mut output = BufWriter::new(File::create(option("output")?)?);
    for url in website.get_all_links_visited().await {
        writeln!(output, "{{\"url\":{}}}", serde_json::to_string(url.as_ref())?)?;
    }
    output.flush()?;
    Ok(())
}
