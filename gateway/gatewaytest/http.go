package gatewaytest

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/gorilla/websocket"
)

const (
	apiPath    = "/api/v10"
	resumePath = "/resume"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+apiPath+"/gateway", s.serveGateway)
	mux.HandleFunc("GET "+apiPath+"/gateway/bot", s.serveGatewayBot)
	mux.HandleFunc("GET "+resumePath, s.serveSocket)
	mux.HandleFunc("GET /{$}", s.serveSocket)
	return mux
}

func (s *Server) serveGateway(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, map[string]any{"url": "ws://" + r.Host})
}

func (s *Server) serveGatewayBot(w http.ResponseWriter, r *http.Request) {
	token, isBot := strings.CutPrefix(r.Header.Get("Authorization"), "Bot ")
	if !isBot || (s.cfg.Token != "" && token != s.cfg.Token) {
		reply(w, http.StatusUnauthorized, map[string]any{"message": "401: Unauthorized", "code": 0})
		return
	}
	s.mu.Lock()
	total := s.total
	s.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{
		"url":    "ws://" + r.Host,
		"shards": s.cfg.Shards,
		"session_start_limit": map[string]any{
			"total":           1000,
			"remaining":       max(0, 1000-total),
			"reset_after":     14400000,
			"max_concurrency": s.cfg.MaxConcurrency,
		},
	})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // a client that hangs up is no concern of ours
}

func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("v") != "10" || q.Get("encoding") != "json" {
		http.Error(w, "want v=10 and encoding=json", http.StatusBadRequest)
		return
	}
	compress := q.Get("compress")
	if compress != "" && compress != "zlib-stream" {
		http.Error(w, "want no compress or compress=zlib-stream", http.StatusBadRequest)
		return
	}
	upgrader := websocket.Upgrader{
		ReadBufferSize:  8 << 10, // its own buffers: the HTTP server's end with this handler
		WriteBufferSize: 1 << 10,
		CheckOrigin:     func(*http.Request) bool { return true },
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the upgrader has answered
	}
	c := newConnection(s, ws, r.Host, r.URL.Path, compress)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		ws.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.done.Go(c.read)  // ends when the socket is closed, by Close at the latest
	s.done.Go(c.write) // ends after read
	s.mu.Unlock()
}
