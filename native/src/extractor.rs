//! The links of a page in one call: scanned, joined, filtered, fingerprinted. Nothing is made in Python for a link that
//! is not new. `LinkExtractor` in `gossamer/extract/links.py` is the reference, and the only user.

use crate::memory::{BuildTextHasher, Keys, Memory, Outcome, OUTCOMES};
use crate::scan::scan;
use crate::urls::{host, origin, sort_query, Base};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bound on all new URLs of a page together, in bytes. As MAX_URL_BYTES of the reference.
const MAX_URL_BYTES: usize = 16 * 1024 * 1024;
/// Origins whose decision or domain is remembered. Each takes about 200 bytes.
const MAX_ORIGINS: usize = 10_000;

type Texts = HashSet<Box<str>, BuildTextHasher>;

/// Filters of links, from the attributes of a Python `LinkScope`.
#[pyclass(module = "gossamer_native")]
pub struct Scope {
    starts: Vec<String>,
    max_length: usize,
    extensions: Texts,
    double_extensions: Vec<String>,
    anywhere: bool,
    /// `reason` of the Python scope, for filters that only Python has: expressions and prefixes. Else None.
    reason: Option<Py<PyAny>>,
    /// Tells whether a host is inside.
    judge_host: Py<PyAny>,
    origins: HashMap<Box<str>, bool, BuildTextHasher>,
}

#[pymethods]
impl Scope {
    #[new]
    fn new(
        starts: Vec<String>,
        extensions: Vec<String>,
        double_extensions: Vec<String>,
        max_length: usize,
        anywhere: bool,
        reason: Option<Py<PyAny>>,
        judge_host: Py<PyAny>,
    ) -> Self {
        Scope {
            starts,
            max_length,
            extensions: extensions.into_iter().map(String::into_boxed_str).collect(),
            double_extensions,
            anywhere,
            reason,
            judge_host,
            origins: HashMap::default(),
        }
    }
}

impl Scope {
    fn outcome(&mut self, py: Python<'_>, url: &str) -> PyResult<Option<Outcome>> {
        if let Some(reason) = &self.reason {
            let name: Option<String> = reason.call1(py, (url,))?.extract(py)?;
            return Ok(name.map(|name| Outcome::of(&name).unwrap_or(Outcome::BadUrl)));
        }
        if url.len() > self.max_length {
            return Ok(Some(Outcome::TooLong));
        }
        if !self.starts.iter().any(|start| url.starts_with(start.as_str())) {
            return Ok(Some(Outcome::Scheme));
        }
        if !self.anywhere && !self.is_inside(py, url)? {
            return Ok(Some(Outcome::Offsite));
        }
        if !self.extensions.is_empty() && self.has_denied_extension(url) {
            return Ok(Some(Outcome::Extension));
        }
        Ok(None)
    }

    fn is_inside(&mut self, py: Python<'_>, url: &str) -> PyResult<bool> {
        let site = origin(url);
        if let Some(inside) = self.origins.get(site) {
            return Ok(*inside);
        }
        let name = host(url);
        let inside = self.judge_host.call1(py, (name.strip_suffix('.').unwrap_or(name),))?.extract(py)?;
        if self.origins.len() >= MAX_ORIGINS {
            self.origins.clear();
        }
        self.origins.insert(site.into(), inside);
        Ok(inside)
    }

    fn has_denied_extension(&self, url: &str) -> bool {
        let path = &url[..url.find('?').unwrap_or(url.len())];
        let segment = &path[path.rfind('/').map_or(0, |at| at + 1)..];
        if !segment.contains('.') {
            return false;
        }
        // `report.pdf;jsessionid=1` is a PDF, too.
        let segment = segment[..segment.find(';').unwrap_or(segment.len())].to_ascii_lowercase();
        let extension = &segment[segment.rfind('.').map_or(0, |at| at + 1)..];
        self.extensions.contains(extension)
            || self.double_extensions.iter().any(|double| segment.ends_with(double.as_str()))
    }
}

/// Extracts the links of the pages of one spider.
#[pyclass(module = "gossamer_native")]
pub struct Extractor {
    seed: u64,
    follow_nofollow: bool,
    sorted_queries: bool,
    namespace: String,
    memory: Py<Memory>,
    refresh_target: Py<PyAny>,
    registered_domain: Py<PyAny>,
    domains: HashMap<Box<str>, Py<PyString>, BuildTextHasher>,
}

/// New URLs of a page, as Python lists of equal length.
struct New<'py> {
    urls: Bound<'py, PyList>,
    fingerprints: Bound<'py, PyList>,
    domains: Bound<'py, PyList>,
    hrefs: Bound<'py, PyList>,
}

/// The first fields of the Python `Links`, in their order: URLs, fingerprints, domains, dropped links, found ones,
/// repeats, `nofollow` and `noindex` of the page, its base URL, hrefs.
type Found<'py> = (
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyDict>,
    usize,
    usize,
    bool,
    bool,
    Bound<'py, PyString>,
    Bound<'py, PyList>,
);

#[pymethods]
impl Extractor {
    #[new]
    #[pyo3(signature = (*, seed, follow_nofollow, sorted_queries, namespace, memory, refresh_target, registered_domain))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        seed: u64,
        follow_nofollow: bool,
        sorted_queries: bool,
        namespace: String,
        memory: Py<Memory>,
        refresh_target: Py<PyAny>,
        registered_domain: Py<PyAny>,
    ) -> Self {
        let domains = HashMap::default();
        Extractor {
            seed,
            follow_nofollow,
            sorted_queries,
            namespace,
            memory,
            refresh_target,
            registered_domain,
            domains,
        }
    }

    /// Return the links of the page `data` with the canonical URL `page`.
    ///
    /// `encode_query`: for a page that was not in UTF-8: returns an href with its query in the page's encoding.
    /// `nofollow`: the response asks not to follow its links.
    fn extract<'py>(
        &mut self,
        py: Python<'py>,
        data: &Bound<'_, PyBytes>,
        page: &str,
        scope: &Bound<'_, Scope>,
        encode_query: Option<&Bound<'_, PyAny>>,
        nofollow: bool,
    ) -> PyResult<Found<'py>> {
        let mut found = scan(data.as_bytes());
        found.nofollow |= nofollow;
        let mut base = String::new();
        let page_base =
            Base::new(page).ok_or_else(|| pyo3::exceptions::PyValueError::new_err("the URL is not canonical"))?;
        let is_page = match &found.base {
            Some(href) => {
                if page_base.join(&text(href), &mut base).is_err() {
                    base.clear();
                    base.push_str(page);
                }
                base == page
            }
            None => {
                base.push_str(page);
                true
            }
        };
        let base = if is_page { page_base } else { Base::new(&base).expect("a joined URL is canonical") };
        let mut hrefs: Vec<Cow<'_, str>> = Vec::with_capacity(found.anchors.len() + found.nexts.len());
        hrefs.extend(found.nexts.iter().map(|href| text(href)));
        for content in &found.refreshes {
            let target: Option<String> = self.refresh_target.call1(py, (text(content).as_ref(),))?.extract(py)?;
            hrefs.extend(target.map(Cow::Owned));
        }
        let mut nofollow = 0;
        for anchor in &found.anchors {
            if anchor.nofollow && !self.follow_nofollow {
                nofollow += 1;
            } else {
                hrefs.push(text(&anchor.href));
            }
        }
        let count = hrefs.len() + nofollow;
        if found.nofollow && !self.follow_nofollow {
            nofollow = count;
            hrefs.clear();
        }
        let dropped = PyDict::new(py);
        if nofollow > 0 {
            dropped.set_item("nofollow", nofollow)?;
        }
        let new = New {
            urls: PyList::empty(py),
            fingerprints: PyList::empty(py),
            domains: PyList::empty(py),
            hrefs: PyList::empty(py),
        };
        let repeats = self.follow(py, &hrefs, page, &base, &mut scope.borrow_mut(), encode_query, &new, &dropped)?;
        let base = PyString::new(py, base.url);
        let New { urls, fingerprints, domains, hrefs } = new;
        Ok((urls, fingerprints, domains, dropped, count, repeats, found.nofollow, found.noindex, base, hrefs))
    }

    /// Remember that the URLs of these hrefs of a document are in the frontier.
    fn remember(&self, py: Python<'_>, base: &str, hrefs: Vec<String>) {
        if let Some(base) = Base::new(base) {
            let keys = Keys::new(&self.namespace, &base);
            let mut memory = self.memory.borrow_mut(py);
            for href in &hrefs {
                memory.keep(&keys, href, Outcome::Known);
            }
        }
    }
}

impl Extractor {
    /// Sort the hrefs into new URLs, repeats and dropped ones. Return the number of repeats.
    #[allow(clippy::too_many_arguments)]
    fn follow(
        &mut self,
        py: Python<'_>,
        hrefs: &[Cow<'_, str>],
        page: &str,
        base: &Base<'_>,
        scope: &mut Scope,
        encode_query: Option<&Bound<'_, PyAny>>,
        new: &New<'_>,
        dropped: &Bound<'_, PyDict>,
    ) -> PyResult<usize> {
        let keys = Keys::new(&self.namespace, base);
        let shared = self.memory.clone_ref(py);
        let mut memory = shared.borrow_mut(py);
        let remembered = memory.recall(&keys);
        // Kept when all hrefs have been looked up. Within the page this changes nothing, because a second occurrence of an
        // href is a repeat.
        let mut refused: Vec<(&str, Outcome)> = Vec::new();
        let mut seen: HashSet<&str, BuildTextHasher> =
            HashSet::with_capacity_and_hasher(hrefs.len(), Default::default());
        let mut urls: Texts = HashSet::default();
        let mut counts = [0usize; OUTCOMES];
        let (mut repeats, mut budget, mut url_bytes) = (0, 0, 0);
        let mut url = String::new();
        for raw in hrefs {
            let href = without_fragment(raw);
            if !seen.insert(href) {
                repeats += 1;
                continue;
            }
            if let Some(outcome) = remembered.get(href) {
                counts[outcome as usize] += 1;
                continue;
            }
            url.clear();
            // Where the page's encoding matters, the same href may be another URL on the next page.
            let encoded: Option<String> = match encode_query {
                Some(encode) if !href.is_ascii() && href.contains('?') => Some(encode.call1((href,))?.extract()?),
                _ => None,
            };
            let target = encoded.as_deref().unwrap_or(href);
            let outcome = match base.join(target, &mut url) {
                Err(outcome) => Some(outcome),
                Ok(()) => {
                    if urls.contains(url.as_str()) {
                        repeats += 1;
                        continue;
                    }
                    if url == page {
                        // Not remembered, because another page of the spider may follow it.
                        counts[Outcome::Known as usize] += 1;
                        continue;
                    }
                    scope.outcome(py, &url)?
                }
            };
            if let Some(outcome) = outcome {
                counts[outcome as usize] += 1;
                if target == href {
                    refused.push((href, outcome));
                }
                continue;
            }
            if url_bytes + url.len() > MAX_URL_BYTES {
                budget += 1;
                continue;
            }
            url_bytes += url.len();
            new.urls.append(PyString::new(py, &url))?;
            new.fingerprints.append(self.fingerprint(&url))?;
            new.domains.append(self.domain(py, &url)?)?;
            new.hrefs.append(PyString::new(py, if target == href { href } else { "" }))?;
            urls.insert(url.as_str().into());
        }
        for (href, outcome) in refused {
            memory.keep(&keys, href, outcome);
        }
        for outcome in Outcome::ALL {
            if counts[outcome as usize] > 0 {
                dropped.set_item(outcome.name(), counts[outcome as usize])?;
            }
        }
        if budget > 0 {
            dropped.set_item("budget", budget)?;
        }
        Ok(repeats)
    }

    fn fingerprint(&self, url: &str) -> i64 {
        if self.sorted_queries {
            let mut sorted = String::with_capacity(url.len());
            sort_query(url, &mut sorted);
            return xxh3_64_with_seed(sorted.as_bytes(), self.seed) as i64;
        }
        xxh3_64_with_seed(url.as_bytes(), self.seed) as i64
    }

    fn domain(&mut self, py: Python<'_>, url: &str) -> PyResult<Py<PyString>> {
        let site = origin(url);
        if let Some(domain) = self.domains.get(site) {
            return Ok(domain.clone_ref(py));
        }
        let domain: Py<PyString> = self.registered_domain.call1(py, (host(url),))?.extract(py)?;
        if self.domains.len() >= MAX_ORIGINS {
            self.domains.clear();
        }
        self.domains.insert(site.into(), domain.clone_ref(py));
        Ok(domain)
    }
}

/// Return text, with U+FFFD for what is no UTF-8.
fn text(raw: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(raw)
}

/// Return an href up to its fragment. One with white space before the `#` stays as it is: the white space belongs to the
/// URL, but would be stripped if it stood at the end.
fn without_fragment(href: &str) -> &str {
    match href.find('#') {
        Some(end) if end == 0 || href.as_bytes()[end - 1] > b' ' => &href[..end],
        _ => href,
    }
}
