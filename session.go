package sluice

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/program"
)

// newSession returns a discordgo session for REST calls, with State.User set:
// handlers compare a message's author with it. It waits until the gateway has
// cached the bot's user, or Discord's API tells it.
func newSession(ctx context.Context, p *program.Process, reader *cache.Reader) (*discordgo.Session, error) {
	s, err := discordgo.New("Bot " + p.Config.Discord.Token)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.StateEnabled = false // nothing feeds it
	transport, err := toAPI(p.Config.Discord.APIURL)
	if err != nil {
		return nil, err
	}
	s.Client = &http.Client{Timeout: 20 * time.Second, Transport: transport}
	waiting := false
	for {
		user, err := reader.Self(ctx)
		if errors.Is(err, cache.ErrNotCached) {
			user, err = s.User("@me", discordgo.WithContext(ctx), discordgo.WithRetryOnRatelimit(false))
		}
		if err == nil {
			s.State.User = user
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !waiting {
			waiting = true
			p.Log.Warn("waiting to learn who the bot is, from the gateway's READY or Discord's API", "err", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// toAPI returns a transport that sends discordgo's calls to another base, such as
// a proxy's; nil for Discord's own.
func toAPI(apiURL string) (http.RoundTripper, error) {
	base, err := url.Parse(apiURL)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if base.Host == "discord.com" && base.Scheme == "https" {
		return nil, nil
	}
	return &rebase{base: base, next: http.DefaultTransport}, nil
}

// A rebase sends requests below discordgo's base to another one.
type rebase struct {
	base *url.URL
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r *rebase) RoundTrip(req *http.Request) (*http.Response, error) {
	rest, ok := strings.CutPrefix(req.URL.String(), strings.TrimSuffix(discordgo.EndpointAPI, "/"))
	if !ok {
		return r.next.RoundTrip(req)
	}
	target, err := url.Parse(strings.TrimSuffix(r.base.String(), "/") + rest)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.URL, out.Host = target, target.Host
	return r.next.RoundTrip(out)
}
