package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// ErrToken is wrapped by errors that say the bot's token is not a valid one.
var ErrToken = errors.New("the bot token is not valid: take the current one from Bot in the developer portal")

// maxBotBytes bounds what is read of an answer; a real one has some 200 bytes.
const maxBotBytes = 64 << 10

// BotInfo is what Discord tells a bot about connecting.
// Source: https://discord.com/developers/docs/events/gateway#get-gateway-bot
type BotInfo struct {
	URL    string // of the gateway, for Config.URL
	Shards int    // that Discord recommends

	// Total and Remaining count the identifies allowed in a day and those left;
	// ResetAfter is when the count starts over.
	Total, Remaining int
	ResetAfter       time.Duration
	// MaxConcurrency is the number of buckets that identify independently.
	MaxConcurrency int
}

// Bot asks Discord for the gateway's address and the bot's limits, with one GET
// of <apiURL>/gateway/bot. A nil client is http.DefaultClient. The token may
// have "Bot " before it. A refused token gives an error that is ErrToken.
func Bot(ctx context.Context, client *http.Client, apiURL, token string) (BotInfo, error) {
	if client == nil {
		client = http.DefaultClient
	}
	token = bareToken(token)
	if token == "" {
		return BotInfo{}, fmt.Errorf("gateway: no token: %w", ErrToken)
	}
	address := strings.TrimRight(apiURL, "/") + "/gateway/bot"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return BotInfo{}, fmt.Errorf("gateway: %w", err)
	}
	req.Header.Set("Authorization", "Bot "+token)
	req.Header.Set("User-Agent", "DiscordBot (https://github.com/sluicehq/sluice, 1)")
	resp, err := client.Do(req)
	if err != nil {
		return BotInfo{}, fmt.Errorf("gateway: %w", err) // names the method and the address
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBotBytes))
	if err != nil {
		return BotInfo{}, fmt.Errorf("gateway: GET %s: %w", address, err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return BotInfo{}, fmt.Errorf("gateway: GET %s: %w", address, ErrToken)
	case http.StatusTooManyRequests:
		return BotInfo{}, fmt.Errorf("gateway: GET %s: rate limited, try again after %s s", address, resp.Header.Get("Retry-After"))
	default:
		return BotInfo{}, fmt.Errorf("gateway: GET %s: status %s: %.200q", address, resp.Status, body)
	}

	var answer struct {
		URL    string `json:"url"`
		Shards int    `json:"shards"`
		Limit  struct {
			Total          int   `json:"total"`
			Remaining      int   `json:"remaining"`
			ResetAfter     int64 `json:"reset_after"` // ms
			MaxConcurrency int   `json:"max_concurrency"`
		} `json:"session_start_limit"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return BotInfo{}, fmt.Errorf("gateway: GET %s: %w", address, err)
	}
	if answer.URL == "" {
		return BotInfo{}, fmt.Errorf("gateway: GET %s: the answer has no url", address)
	}
	return BotInfo{
		URL:            answer.URL,
		Shards:         max(answer.Shards, 1),
		Total:          answer.Limit.Total,
		Remaining:      answer.Limit.Remaining,
		ResetAfter:     time.Duration(answer.Limit.ResetAfter) * time.Millisecond,
		MaxConcurrency: max(answer.Limit.MaxConcurrency, 1),
	}, nil
}

// ApplicationID returns the id of the application a token belongs to: its first
// segment is that id in base64. The token may have "Bot " before it. The error
// is ErrToken and does not contain the token.
func ApplicationID(token string) (string, error) {
	segment, _, _ := strings.Cut(bareToken(token), ".")
	id, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(segment, "="))
	if err != nil {
		id, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(segment, "="))
	}
	if err != nil || len(id) == 0 {
		return "", fmt.Errorf("gateway: no application id in the token: %w", ErrToken)
	}
	for _, c := range id {
		if c < '0' || c > '9' {
			return "", fmt.Errorf("gateway: no application id in the token: %w", ErrToken)
		}
	}
	return string(id), nil
}
