//! Compiled parts of Gossamer's hot path. Each has a reference in Python, which is used where this module is missing.

mod extractor;
mod memory;
mod plain;
mod record;
mod references;
mod response;
mod scan;
mod urls;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// What the scanner finds on a page, for tests: hrefs with their `nofollow`, hrefs of `rel=next`, contents of
/// refreshes, href of `base`, `nofollow` and `noindex` of the page.
type Scanned = (Vec<(String, bool)>, Vec<String>, Vec<String>, Option<String>, bool, bool);

#[pyfunction]
fn scan_links(data: &Bound<'_, PyBytes>) -> Scanned {
    let found = scan::scan(data.as_bytes());
    let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
    (
        found.anchors.iter().map(|anchor| (text(&anchor.href), anchor.nofollow)).collect(),
        found.nexts.iter().map(|one| text(one)).collect(),
        found.refreshes.iter().map(|one| text(one)).collect(),
        found.base.as_deref().map(text),
        found.nofollow,
        found.noindex,
    )
}

/// Links of a plain page: href, text and `rel` of each. None: the page is not plain, so a parser has to read it.
type PlainLinks = Option<Vec<(String, String, Option<String>)>>;

#[pyfunction]
fn plain_links(page: &Bound<'_, PyString>) -> PlainLinks {
    let found = plain::plain_links(page.to_str().ok()?)?;
    Some(found.into_iter().map(|link| (link.href, link.text, link.rel.map(str::to_owned))).collect())
}
/// Number of the functions' and classes' form, which the Python code compares: it leaves out an extension of another one.
const INTERFACE: u32 = 5;

#[pymodule]
fn gossamer_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<extractor::Scope>()?;
    module.add_class::<extractor::Extractor>()?;
    module.add_function(wrap_pyfunction!(plain_links, module)?)?;
    module.add_function(wrap_pyfunction!(record::put_bodies, module)?)?;
    module.add_function(wrap_pyfunction!(record::is_utf8, module)?)?;
    module.add_function(wrap_pyfunction!(response::read_head, module)?)?;
    module.add_function(wrap_pyfunction!(memory::text_hash, module)?)?;
    module.add_function(wrap_pyfunction!(scan_links, module)?)
}
