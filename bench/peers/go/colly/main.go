// Crawls a site with colly as fast as colly can: every page once, one JSON line per page.
//
// colly's own visited check is not atomic: pages that are found twice at once are fetched twice. So the check is made
// here, and 64 goroutines take URLs from this program's queue.
package main

import (
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/gocolly/colly/v2"

	"gossamer/bench/crawl"
)

// visit is a request in flight.
type visit struct {
	crawl.Page
	sent time.Time
}

const visitKey = "visit"

// visitOf returns the visit that a request belongs to.
func visitOf(request *colly.Request) visit {
	return request.Ctx.GetAny(visitKey).(visit)
}

func main() {
	options := crawl.ReadOptions()
	output := crawl.OpenOutput(options.Output)
	frontier := crawl.NewFrontier()
	collector := colly.NewCollector(colly.AllowURLRevisit())
	collector.TraceHTTP = true
	collector.WithTransport(crawl.Transport(options))
	collector.OnHTML("a[href]", func(element *colly.HTMLElement) {
		url, _, _ := strings.Cut(element.Request.AbsoluteURL(element.Attr("href")), "#")
		if strings.HasPrefix(url, "http") {
			frontier.Add(url, visitOf(element.Request).Depth+1)
		}
	})
	collector.OnResponse(func(response *colly.Response) {
		visited := visitOf(response.Request)
		answer := crawl.Answer{
			URL:            response.Request.URL.String(),
			Status:         response.StatusCode,
			Headers:        *response.Headers,
			RequestHeaders: *response.Request.Headers,
			Body:           response.Body,
			Sent:           visited.sent,
		}
		if response.Trace != nil {
			answer.Connect, answer.UntilFirstByte = response.Trace.ConnectDuration, response.Trace.FirstByteDuration
		}
		output.Write(crawl.NewRecord("colly", visited.Page, answer))
	})
	collector.OnError(func(response *colly.Response, err error) { log.Print(response.Request.URL, " ", err) })
	for _, url := range options.Seeds {
		frontier.Add(url, 0)
	}
	frontier.Run(options.Concurrency, func(page crawl.Page) {
		ctx := colly.NewContext()
		ctx.Put(visitKey, visit{page, time.Now()})
		_ = collector.Request(http.MethodGet, page.URL, nil, ctx, nil) // OnError has logged the error
	})
	output.Close()
}
