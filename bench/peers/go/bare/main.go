// Crawls a site with Go's HTTP client and the HTML tokenizer of golang.org/x/net alone: every page once, one JSON line
// per page. This is about the least that a page costs in Go: no politeness, no retries, nothing durable.
package main

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/html"

	"gossamer/bench/crawl"
)

func main() {
	options := crawl.ReadOptions()
	output := crawl.OpenOutput(options.Output)
	frontier := crawl.NewFrontier()
	client := &http.Client{Transport: crawl.Transport(options)}
	for _, url := range options.Seeds {
		frontier.Add(url, 0)
	}
	frontier.Run(options.Concurrency, func(page crawl.Page) {
		answer, err := fetch(client, page)
		if err != nil {
			log.Fatal(page.URL, " ", err) // the site has no bad pages
		}
		for _, link := range links(answer.Body, answer.URL) {
			frontier.Add(link, page.Depth+1)
		}
		output.Write(crawl.NewRecord("bare-go", page, answer))
	})
	output.Close()
}

func fetch(client *http.Client, page crawl.Page) (crawl.Answer, error) {
	sent := time.Now()
	request, err := http.NewRequest(http.MethodGet, page.URL, nil)
	if err != nil {
		return crawl.Answer{}, err
	}
	request.Header.Set("User-Agent", "bench-bare-go")
	request.Header.Set("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	response, err := client.Do(request)
	if err != nil {
		return crawl.Answer{}, err
	}
	defer response.Body.Close()
	firstByte := time.Since(sent)
	body, err := read(response)
	return crawl.Answer{
		URL:            response.Request.URL.String(),
		Status:         response.StatusCode,
		Headers:        response.Header,
		RequestHeaders: request.Header,
		Body:           body,
		Sent:           sent,
		UntilFirstByte: firstByte,
	}, err
}

// read returns the body, with one allocation where its length is known.
func read(response *http.Response) ([]byte, error) {
	if response.ContentLength < 0 {
		return io.ReadAll(response.Body)
	}
	body := make([]byte, response.ContentLength)
	_, err := io.ReadFull(response.Body, body)
	return body, err
}

// links returns the absolute URLs of a page's anchors, without fragments.
func links(body []byte, base string) []string {
	root, err := url.Parse(base)
	if err != nil {
		return nil
	}
	var found []string
	for tokens := html.NewTokenizer(bytes.NewReader(body)); ; {
		switch tokens.Next() {
		case html.ErrorToken:
			return found
		case html.StartTagToken, html.SelfClosingTagToken:
			name, more := tokens.TagName()
			if string(name) != "a" {
				continue
			}
			for more {
				var key, value []byte
				key, value, more = tokens.TagAttr()
				if string(key) != "href" {
					continue
				}
				link, err := root.Parse(string(value))
				if err == nil && (link.Scheme == "http" || link.Scheme == "https") {
					link.Fragment, link.RawFragment = "", ""
					found = append(found, link.String())
				}
				break // the first of several attributes of a name counts
			}
		}
	}
}
