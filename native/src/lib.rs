//! Compiled parts of Gossamer's hot path. Each has a reference in Python, which is used where this module is missing.

mod extractor;
mod memory;
mod references;
mod scan;
mod urls;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

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

#[pymodule]
fn gossamer_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<memory::Memory>()?;
    module.add_class::<extractor::Scope>()?;
    module.add_class::<extractor::Extractor>()?;
    module.add_function(wrap_pyfunction!(scan_links, module)?)
}
