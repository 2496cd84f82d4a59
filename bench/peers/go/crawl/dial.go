package crawl

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// Transport returns a client's transport that connects to one address, whatever the host's name: DNS does not know the
// names of the benchmark. It verifies no certificate, and keeps idle connections for all requests in flight.
func Transport(options Options) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, options.Address)
		},
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: options.Concurrency,
		IdleConnTimeout:     time.Minute,
	}
}
