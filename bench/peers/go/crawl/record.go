package crawl

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Record has the fields of Gossamer's page record, so that all crawlers write the same. A value that a crawler does not
// know is written as it would be for every page here.
type Record struct {
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
	Timings         Timings             `json:"timings"`
	IP              string              `json:"ip"`
	Truncated       bool                `json:"truncated"`
}

// Timings are in seconds.
type Timings struct {
	DNS       float64 `json:"dns"`
	Connect   float64 `json:"connect"`
	TLS       float64 `json:"tls"`
	FirstByte float64 `json:"first_byte"`
	Total     float64 `json:"total"`
}

// Answer is what a crawler knows of a response.
type Answer struct {
	URL            string
	Status         int
	Headers        http.Header
	RequestHeaders http.Header
	Body           []byte
	Sent           time.Time
	Connect        time.Duration
	UntilFirstByte time.Duration
}

// NewRecord returns the record of a page.
func NewRecord(crawler string, page Page, answer Answer) Record {
	now := time.Now()
	body, bodyEncoding := "", "text"
	if utf8.Valid(answer.Body) {
		body = string(answer.Body)
	} else {
		body, bodyEncoding = base64.StdEncoding.EncodeToString(answer.Body), "base64"
	}
	contentType := answer.Headers.Get("Content-Type")
	_, charset, _ := strings.Cut(contentType, "charset=")
	return Record{
		Type: "page", AppID: "bench", CrawlID: crawler, SpiderID: "link",
		RequestID:       requestID(page.URL),
		Depth:           page.Depth,
		URL:             page.URL,
		ResponseURL:     answer.URL,
		StatusCode:      answer.Status,
		StatusMessage:   http.StatusText(answer.Status),
		ResponseHeaders: answer.Headers,
		RequestHeaders:  answer.RequestHeaders,
		Body:            body,
		BodyEncoding:    bodyEncoding,
		Encoding:        charset,
		ContentType:     contentType,
		Links:           []string{},
		Timestamp:       now.UTC().Format("2006-01-02T15:04:05.000000-07:00"),
		Success:         true,
		Redirects:       []string{},
		Timings: Timings{
			Connect:   answer.Connect.Seconds(),
			FirstByte: answer.UntilFirstByte.Seconds(),
			Total:     now.Sub(answer.Sent).Seconds(),
		},
	}
}

func requestID(url string) string {
	hash := fnv.New64a()
	hash.Write([]byte(url))
	return fmt.Sprintf("%032x", hash.Sum64())
}

// Output writes records to a file, one at a time.
type Output struct {
	mutex   sync.Mutex
	file    *os.File
	buffer  *bufio.Writer
	encoder *json.Encoder
}

// OpenOutput makes the file.
func OpenOutput(path string) *Output {
	file, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	buffer := bufio.NewWriterSize(file, 1<<20)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	return &Output{file: file, buffer: buffer, encoder: encoder}
}

// Write appends a record.
func (o *Output) Write(record Record) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if err := o.encoder.Encode(record); err != nil {
		log.Fatal(err)
	}
}

// Close writes what is buffered.
func (o *Output) Close() {
	if err := o.buffer.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := o.file.Close(); err != nil {
		log.Fatal(err)
	}
}
