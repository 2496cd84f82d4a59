//! The fields of Gossamer's page record, so that all crawlers write the same. A value that this crawler does not know is
//! written as it would be for every page here.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use hyper::header::{HeaderMap, CONTENT_TYPE};
use serde::Serialize;

use crate::fetch::Answer;
use crate::Failure;

type Headers<'a> = BTreeMap<&'a str, Vec<&'a str>>;

#[derive(Serialize)]
struct Record<'a> {
    r#type: &'a str,
    appid: &'a str,
    crawlid: &'a str,
    spiderid: &'a str,
    request_id: String,
    attempt: u32,
    depth: u32,
    url: &'a str,
    response_url: &'a str,
    status_code: u16,
    status_msg: &'a str,
    response_headers: Headers<'a>,
    request_headers: Headers<'a>,
    body: &'a str,
    body_encoding: &'a str,
    encoding: &'a str,
    content_type: &'a str,
    links: [&'a str; 0],
    attrs: Option<&'a str>,
    timestamp: String,
    success: bool,
    reason: &'a str,
    exception: &'a str,
    redirects: [&'a str; 0],
    timings: Timings,
    ip: &'a str,
    truncated: bool,
}

/// Times in seconds.
#[derive(Default, Serialize)]
struct Timings {
    dns: f64,
    connect: f64,
    tls: f64,
    first_byte: f64,
    total: f64,
}

/// Writes the record of a page. Fails for a body that is not UTF-8: the site has none.
pub fn write(output: &mut impl Write, url: &str, depth: u32, answer: &Answer, took: Duration) -> Result<(), Failure> {
    let content_type = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    url.hash(&mut hasher);
    let record = Record {
        r#type: "page",
        appid: "bench",
        crawlid: "bare-rust",
        spiderid: "link",
        request_id: format!("{:032x}", hasher.finish()),
        attempt: 0,
        depth,
        url,
        response_url: url,
        status_code: answer.status.as_u16(),
        status_msg: answer.status.canonical_reason().unwrap_or_default(),
        response_headers: texts(&answer.headers),
        request_headers: texts(&answer.request_headers),
        body: std::str::from_utf8(&answer.body)?,
        body_encoding: "text",
        encoding: content_type.split_once("charset=").map_or("", |(_, charset)| charset),
        content_type,
        links: [],
        attrs: None,
        timestamp: Utc::now().to_rfc3339_opts(SecondsFormat::Micros, false),
        success: true,
        reason: "",
        exception: "",
        redirects: [],
        timings: Timings { total: took.as_secs_f64(), ..Timings::default() },
        ip: "127.0.0.1",
        truncated: false,
    };
    serde_json::to_writer(&mut *output, &record)?;
    output.write_all(b"\n")?;
    Ok(())
}

fn texts(headers: &HeaderMap) -> Headers<'_> {
    let mut found = Headers::new();
    for (name, value) in headers {
        found.entry(name.as_str()).or_default().push(value.to_str().unwrap_or_default());
    }
    found
}
