package main

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gocolly/colly/v2"
)

// record has the fields of Gossamer's page record, so that both crawlers write the same. What colly does not tell (the
// server's address, how often a page was tried) is written as it would be for every page here.
type record struct {
	Type            string              `json:"type"`
	AppID           string              `json:"appid"`
	CrawlID         string              `json:"crawlid"`
	SpiderID        string              `json:"spiderid"`
	RequestID       string              `json:"request_id"`
	Attempt         int                 `json:"attempt"`
	Depth           int                 `json:"depth"`
	URL             string              `json:"url"`
	ResponseURL     string              `json:"response_url"`
	StatusCode      int                 `json:"status_code"`
	StatusMessage   string              `json:"status_msg"`
	ResponseHeaders map[string][]string `json:"response_headers"`
	RequestHeaders  map[string][]string `json:"request_headers"`
	Body            string              `json:"body"`
	BodyEncoding    string              `json:"body_encoding"`
	Encoding        string              `json:"encoding"`
	ContentType     string              `json:"content_type"`
	Links           []string            `json:"links"`
	Attrs           map[string]string   `json:"attrs"`
	Timestamp       string              `json:"timestamp"`
	Success         bool                `json:"success"`
	Reason          string              `json:"reason"`
	Exception       string              `json:"exception"`
	Redirects       []string            `json:"redirects"`
	Timings         timings             `json:"timings"`
	IP              string              `json:"ip"`
	Truncated       bool                `json:"truncated"`
}

// timings are in seconds.
type timings struct {
	DNS       float64 `json:"dns"`
	Connect   float64 `json:"connect"`
	TLS       float64 `json:"tls"`
	FirstByte float64 `json:"first_byte"`
	Total     float64 `json:"total"`
}

// recordOf takes a whole answer. url is as it was found, depth how many links away from a seed.
func recordOf(response *colly.Response, url string, depth int, sent time.Time) record {
	now := time.Now()
	body, bodyEncoding := "", "text"
	if utf8.Valid(response.Body) {
		body = string(response.Body)
	} else {
		body, bodyEncoding = base64.StdEncoding.EncodeToString(response.Body), "base64"
	}
	contentType := response.Headers.Get("Content-Type")
	_, charset, _ := strings.Cut(contentType, "charset=")
	r := record{
		Type: "page", AppID: "bench", CrawlID: "colly", SpiderID: "link",
		RequestID:       requestID(url),
		Depth:           depth,
		URL:             url,
		ResponseURL:     response.Request.URL.String(),
		StatusCode:      response.StatusCode,
		StatusMessage:   http.StatusText(response.StatusCode),
		ResponseHeaders: *response.Headers,
		RequestHeaders:  *response.Request.Headers,
		Body:            body,
		BodyEncoding:    bodyEncoding,
		Encoding:        charset,
		ContentType:     contentType,
		Links:           []string{},
		Timestamp:       now.UTC().Format("2006-01-02T15:04:05.000000-07:00"),
		Success:         true,
		Redirects:       []string{},
		Timings:         timings{Total: now.Sub(sent).Seconds()},
	}
	if response.Trace != nil {
		r.Timings.Connect = response.Trace.ConnectDuration.Seconds()
		r.Timings.FirstByte = response.Trace.FirstByteDuration.Seconds()
	}
	return r
}

func requestID(url string) string {
	hash := fnv.New64a()
	hash.Write([]byte(url))
	return fmt.Sprintf("%032x", hash.Sum64())
}
