//! Canonical URLs of hrefs, as `gossamer/policy/urls.py` makes them. That module is the reference and says why each rule
//! is as it is; tests compare both.

use crate::memory::Outcome;

/// Longest canonical URL in bytes; URLs are ASCII. As MAX_URL_LENGTH of the reference: fixed.
pub const MAX_URL: usize = 8192;
const MAX_HOST: usize = 254;
const MAX_INPUT: usize = 8 * MAX_URL;
const CLEAN: usize = MAX_URL / 4;

/// A document's canonical base URL, split once for all its links.
pub struct Base<'a> {
    pub url: &'a str,
    pub origin: &'a str,
    pub directory: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
}

impl<'a> Base<'a> {
    /// `url` must be canonical: `http://` or `https://`, a host and a path. None: it is not.
    pub fn new(url: &'a str) -> Option<Self> {
        let authority = url.find("://")? + 3;
        let path = authority + url.get(authority..)?.find('/')?;
        let query = url.find('?').unwrap_or(url.len());
        let last = url[..query].rfind('/')?;
        Some(Base { url, origin: &url[..path], directory: &url[..=last], scheme: &url[..authority - 3] })
    }

    /// Append the canonical URL of `href` to `out`, which must be empty, or return why it has none.
    pub fn join(&self, href: &str, out: &mut String) -> Result<(), Outcome> {
        if self.join_clean(href, out) {
            return Ok(());
        }
        if href.len() > MAX_INPUT && href.chars().count() > MAX_INPUT {
            return Err(Outcome::TooLong);
        }
        let parsed = ada_url::Url::parse(href, Some(self.url)).map_err(|_| Outcome::BadUrl)?;
        accept(parsed.href(), out)
    }

    /// Join an href that needs no parser, as most do.
    fn join_clean(&self, href: &str, out: &mut String) -> bool {
        let bytes = href.as_bytes();
        if self.url.len() > CLEAN || bytes.is_empty() || bytes.len() >= CLEAN {
            return false;
        }
        if bytes[0] == b'/' {
            if is_clean(&bytes[1..]) {
                out.push_str(self.origin);
                out.push_str(href);
                return true;
            }
            if href.starts_with("//") {
                // `//host/path`: clean if it is on the document's own site.
                let site = &self.origin[self.scheme.len() + 1..];
                if let Some(rest) = href.strip_prefix(site).and_then(|rest| rest.strip_prefix('/')) {
                    if is_clean(rest.as_bytes()) {
                        out.push_str(self.scheme);
                        out.push(':');
                        out.push_str(href);
                        return true;
                    }
                }
            }
            return false;
        }
        if href.starts_with("http") {
            let rest = href.strip_prefix(self.origin).and_then(|rest| rest.strip_prefix('/'));
            if rest.is_some_and(|rest| is_clean(rest.as_bytes())) {
                out.push_str(href);
                return true;
            }
            return false;
        }
        if let Some(rest) = href.strip_prefix("../") {
            if !is_clean(rest.as_bytes()) {
                return false;
            }
            let above = if self.directory.len() == self.origin.len() + 1 {
                self.directory
            } else {
                let inner = &self.directory[..self.directory.len() - 1];
                &self.directory[..inner.rfind('/').map_or(0, |at| at + 1)]
            };
            out.push_str(above);
            out.push_str(rest);
            return true;
        }
        if bytes[0] != b'?' && is_clean(bytes) {
            out.push_str(self.directory);
            out.push_str(href);
            return true;
        }
        false
    }
}

/// Whether a URL parser would leave this path and query as they are: clean segments, of which none is `.` or `..`.
fn is_clean(text: &[u8]) -> bool {
    let mut at = 0;
    let mut begins = true; // a segment
    while at < text.len() {
        let byte = text[at];
        if byte == b'?' {
            return text[at + 1..].iter().all(|byte| IN_QUERY[*byte as usize]);
        }
        if byte == b'/' {
            if begins {
                return false; // an empty segment
            }
            begins = true;
        } else {
            if !IN_PATH[byte as usize] || (begins && byte == b'.') {
                return false;
            }
            begins = false;
        }
        at += 1;
    }
    true
}

static IN_PATH: [bool; 256] = table(b"._~-");
static IN_QUERY: [bool; 256] = table(b"._~=&+:,;/-");

const fn table(more: &[u8]) -> [bool; 256] {
    let mut found = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        found[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < more.len() {
        found[more[at] as usize] = true;
        at += 1;
    }
    found
}

/// Append a serialised URL without fragment and credentials.
fn accept(href: &str, out: &mut String) -> Result<(), Outcome> {
    let href = &href[..href.find('#').unwrap_or(href.len())];
    let start = if href.starts_with("http://") {
        7
    } else if href.starts_with("https://") {
        8
    } else {
        return Err(Outcome::Scheme);
    };
    let path = start + href[start..].find('/').ok_or(Outcome::BadUrl)?;
    match href[start..path].rfind('@') {
        Some(at) => {
            out.push_str(&href[..start]);
            out.push_str(&href[start + at + 1..]);
        }
        None => out.push_str(href),
    }
    if out.len() > MAX_HOST && (out.len() > MAX_URL || host(out).len() > MAX_HOST) {
        out.clear();
        return Err(Outcome::TooLong);
    }
    Ok(())
}

/// Return the host of a canonical URL, without port. An IPv6 address keeps its brackets.
pub fn host(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let authority = &url[start..url[start..].find('/').map_or(url.len(), |at| start + at)];
    if authority.ends_with(']') {
        return authority;
    }
    if authority.starts_with('[') {
        return &authority[..authority.rfind(':').unwrap_or(authority.len())];
    }
    &authority[..authority.find(':').unwrap_or(authority.len())]
}

/// Return `scheme://host[:port]` of a canonical URL.
pub fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    &url[..url[start..].find('/').map_or(url.len(), |at| start + at)]
}

/// Append a canonical URL with its query parameters sorted.
pub fn sort_query(url: &str, out: &mut String) {
    match url.split_once('?') {
        Some((path, query)) if query.contains('&') => {
            let mut parameters: Vec<&str> = query.split('&').collect();
            parameters.sort_unstable();
            out.push_str(path);
            out.push('?');
            out.push_str(&parameters.join("&"));
        }
        _ => out.push_str(url),
    }
}
