// Package crawl holds what the crawlers in Go share: a queue in memory, the page record, the output, the options.
package crawl

import (
	"flag"
	"log"
	"os"
	"strings"
	"sync"
)

// Options are the command-line options that all crawlers of the benchmark take.
type Options struct {
	Seeds       []string
	Output      string
	Address     string
	Concurrency int
}

// ReadOptions parses the command line and reads the file of seeds.
func ReadOptions() Options {
	seeds := flag.String("seeds", "", "file with a URL per line")
	output := flag.String("output", "", "JSON Lines file")
	address := flag.String("address", "", "host:port to which every connection goes")
	concurrency := flag.Int("concurrency", 64, "requests in flight")
	flag.Parse()
	list, err := os.ReadFile(*seeds)
	if err != nil {
		log.Fatal(err)
	}
	return Options{strings.Fields(string(list)), *output, *address, *concurrency}
}

// Page is a page to fetch.
type Page struct {
	URL   string
	Depth int
}

// Frontier is an unbounded queue in memory with the set of URLs that were ever in it.
type Frontier struct {
	mutex   sync.Mutex
	wake    *sync.Cond
	queue   []Page
	seen    map[string]struct{}
	pending int // pages that are queued or in flight
}

// NewFrontier returns an empty frontier.
func NewFrontier() *Frontier {
	f := &Frontier{seen: map[string]struct{}{}}
	f.wake = sync.NewCond(&f.mutex)
	return f
}

// Add queues a URL that was never added before.
func (f *Frontier) Add(url string, depth int) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if _, known := f.seen[url]; known {
		return
	}
	f.seen[url] = struct{}{}
	f.queue = append(f.queue, Page{url, depth})
	f.pending++
	f.wake.Signal()
}

// Run calls fetch for every page, in so many goroutines, until no page is queued or in flight.
func (f *Frontier) Run(concurrency int, fetch func(Page)) {
	var workers sync.WaitGroup
	for range concurrency {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for page, more := f.take(); more; page, more = f.take() {
				fetch(page)
				f.done()
			}
		}()
	}
	workers.Wait()
}

// take waits for a page. It returns false when the crawl is over.
func (f *Frontier) take() (Page, bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for len(f.queue) == 0 {
		if f.pending == 0 {
			return Page{}, false
		}
		f.wake.Wait()
	}
	next := f.queue[0]
	f.queue = f.queue[1:]
	return next, true
}

func (f *Frontier) done() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.pending--
	if f.pending == 0 {
		f.wake.Broadcast()
	}
}
