// Crawls a site with colly as fast as colly goes, for the comparison: every page once, one JSON line a page.
//
// colly's own visited check is not atomic (pages that are found twice at once are fetched twice), so the check is made
// here, and 64 goroutines take from a queue of ours: this is colly at its best.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gocolly/colly/v2"
)

// found is a page that was linked to.
type found struct {
	url   string
	depth int
}

// frontier is a queue without a bound, a set of what was in it, and a count of what is not done yet.
type frontier struct {
	mutex   sync.Mutex
	wake    *sync.Cond
	queue   []found
	seen    map[string]struct{}
	pending int
}

func newFrontier() *frontier {
	f := &frontier{seen: map[string]struct{}{}}
	f.wake = sync.NewCond(&f.mutex)
	return f
}

func (f *frontier) add(url string, depth int) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if _, known := f.seen[url]; known {
		return
	}
	f.seen[url] = struct{}{}
	f.queue = append(f.queue, found{url, depth})
	f.pending++
	f.wake.Signal()
}

// take waits for a page; false when the crawl is over.
func (f *frontier) take() (found, bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for len(f.queue) == 0 {
		if f.pending == 0 {
			return found{}, false
		}
		f.wake.Wait()
	}
	next := f.queue[0]
	f.queue = f.queue[1:]
	return next, true
}

func (f *frontier) done() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.pending--
	if f.pending == 0 {
		f.wake.Broadcast()
	}
}

// sink writes records, one at a time.
type sink struct {
	mutex   sync.Mutex
	encoder *json.Encoder
}

func (s *sink) write(r record) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.encoder.Encode(r)
}

// visit is one request under way.
type visit struct {
	found
	sent time.Time
}

const visitKey = "visit"

// of is the visit that a request belongs to.
func of(request *colly.Request) visit {
	return request.Ctx.GetAny(visitKey).(visit)
}

func main() {
	seeds := flag.String("seeds", "", "file with a URL a line")
	output := flag.String("output", "", "JSON Lines file")
	address := flag.String("address", "", "host:port that every connection goes to")
	concurrency := flag.Int("concurrency", 64, "requests in flight")
	flag.Parse()

	file, err := os.Create(*output)
	if err != nil {
		log.Fatal(err)
	}
	buffer := bufio.NewWriterSize(file, 1<<20)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	pages := &sink{encoder: encoder}

	links := newFrontier()
	collector := colly.NewCollector(colly.AllowURLRevisit())
	collector.TraceHTTP = true
	collector.WithTransport(&http.Transport{
		DialContext:         (&fixedDialer{*address}).dial,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: *concurrency,
		IdleConnTimeout:     time.Minute,
	})
	collector.OnHTML("a[href]", func(element *colly.HTMLElement) {
		url, _, _ := strings.Cut(element.Request.AbsoluteURL(element.Attr("href")), "#")
		if strings.HasPrefix(url, "http") {
			links.add(url, of(element.Request).depth+1)
		}
	})
	collector.OnResponse(func(response *colly.Response) {
		page := of(response.Request)
		if err := pages.write(recordOf(response, page.url, page.depth, page.sent)); err != nil {
			log.Fatal(err)
		}
	})
	collector.OnError(func(response *colly.Response, err error) { log.Print(response.Request.URL, " ", err) })

	list, err := os.ReadFile(*seeds)
	if err != nil {
		log.Fatal(err)
	}
	for _, url := range strings.Fields(string(list)) {
		links.add(url, 0)
	}
	var workers sync.WaitGroup
	for range *concurrency {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for next, more := links.take(); more; next, more = links.take() {
				ctx := colly.NewContext()
				ctx.Put(visitKey, visit{next, time.Now()})
				_ = collector.Request(http.MethodGet, next.url, nil, ctx, nil) // OnError has said it
				links.done()
			}
		}()
	}
	workers.Wait()
	if err := buffer.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
}
