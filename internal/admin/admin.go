// Package admin serves what an operator asks a process: its metrics, whether it
// turns, and whether it is ready.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyTimeout bounds one answer of /readyz.
const readyTimeout = 2 * time.Second

// NewRegistry returns a registry with the metrics of the process and the Go
// runtime.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// A Server answers on one address. Create it with Listen.
type Server struct {
	listener net.Listener
	server   *http.Server
}

// Listen opens addr (host:port; port 0 picks one). ready says why the process is
// not ready, nil if it is; it is called at each request, with 2 s of time.
//
//	/metrics  all of gather, in the format of Prometheus
//	/healthz  200 while the process turns; it asks nobody
//	/readyz   200, or 503 with the reason
func Listen(addr string, gather prometheus.Gatherer, ready func(context.Context) error) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin: listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gather, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return &Server{listener: l, server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}, nil
}

// Addr returns the address that is listened on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run answers until ctx is cancelled, then lets answers under way end.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // ends by itself, at the latest after the timeout
		defer close(ended)
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		s.server.Shutdown(shutdown)
	})
	err := s.server.Serve(s.listener)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("admin: %w", err)
}
