//! Crawls a site with hyper and lol_html alone: every page once, one JSON line per page. This is about the least that a
//! page costs in Rust: no politeness, no retries, nothing durable. One thread, as many tasks as requests in flight.

mod fetch;
mod record;

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::rc::Rc;
use std::time::Instant;

use lol_html::{element, HtmlRewriter, Settings};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use url::Url;

use fetch::Client;

type Failure = Box<dyn Error>;

/// Queue in memory, the set of URLs that were ever in it, and the output.
struct Crawl {
    queue: VecDeque<(String, u32)>,
    seen: HashSet<String>,
    in_flight: usize,
    output: BufWriter<File>,
}

impl Crawl {
    /// Queues a URL that was never added before.
    fn add(&mut self, url: &str, depth: u32) {
        if !self.seen.contains(url) {
            self.seen.insert(url.to_string());
            self.queue.push_back((url.to_string(), depth));
        }
    }
}

/// Returns the value of an option of the command line.
fn option(name: &str) -> Result<String, String> {
    let prefix = format!("--{name}=");
    std::env::args()
        .find_map(|argument| argument.strip_prefix(&prefix).map(String::from))
        .ok_or(format!("--{name} is missing"))
}

fn main() -> Result<(), Failure> {
    let mut crawl = Crawl {
        queue: VecDeque::new(),
        seen: HashSet::new(),
        in_flight: 0,
        output: BufWriter::with_capacity(1 << 20, File::create(option("output")?)?),
    };
    for seed in fs::read_to_string(option("seeds")?)?.split_whitespace() {
        crawl.add(seed, 0);
    }
    let crawl = Rc::new(RefCell::new(crawl));
    let found = Rc::new(Notify::new());
    let (address, concurrency) = (option("address")?.parse()?, option("concurrency")?.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        let workers: Vec<_> = (0..concurrency)
            .map(|_| tokio::task::spawn_local(work(crawl.clone(), found.clone(), Client::new(address))))
            .collect();
        for worker in workers {
            worker.await??;
        }
        Ok::<(), Failure>(())
    }))?;
    crawl.borrow_mut().output.flush()?;
    Ok(())
}

/// Fetches pages until none is queued or in flight. Fails at the first error: the site has no bad pages.
async fn work(crawl: Rc<RefCell<Crawl>>, found: Rc<Notify>, mut client: Client) -> Result<(), Failure> {
    loop {
        let next = crawl.borrow_mut().queue.pop_front();
        let Some((url, depth)) = next else {
            if crawl.borrow().in_flight == 0 {
                found.notify_waiters();
                return Ok(());
            }
            found.notified().await;
            continue;
        };
        crawl.borrow_mut().in_flight += 1;
        let base = Url::parse(&url)?;
        let sent = Instant::now();
        let answer = client.fetch(&base).await?;
        let mut state = crawl.borrow_mut();
        state.in_flight -= 1;
        for link in links(&answer.body, &base)? {
            state.add(&link, depth + 1);
        }
        record::write(&mut state.output, &url, depth, &answer, sent.elapsed())?;
        found.notify_waiters();
    }
}

/// Returns the absolute URLs of a page's anchors, without fragments.
fn links(body: &[u8], base: &Url) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let anchors = element!("a[href]", |anchor| {
        if let Some(Ok(mut link)) = anchor.get_attribute("href").map(|href| base.join(&href)) {
            if link.scheme().starts_with("http") {
                link.set_fragment(None);
                found.push(String::from(link));
            }
        }
        Ok(())
    });
    let settings = Settings::new().append_element_content_handler(anchors);
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    rewriter.write(body)?;
    rewriter.end()?;
    Ok(found)
}
