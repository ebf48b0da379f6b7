package gateway

import (
	"fmt"
	"strings"
)

// closeResumable is the code the shard closes with: any but 1000 and 1001 keeps
// the session alive.
// Source: https://discord.com/developers/docs/events/gateway#disconnecting
const closeResumable = 4000

// A verdict is what follows from a close code of Discord's.
type verdict uint8

const (
	resume   verdict = iota // connect again and resume
	identify                // the session is gone: connect again and identify
	fatal                   // connecting again can't help
)

// A closeRule is one line of the table.
type closeRule struct {
	code    int
	verdict verdict
	meaning string
	advice  string // fatal ones: what to change, and where
}

// closeRules has every code that Discord documents, and those of the WebSocket
// protocol that mean something here. What is not in it is resumed, as is a
// connection lost without a code: whether a session is still good Discord
// decides, and a refused RESUME costs nothing. For that reason 1001 ("going
// away", which proxies before Discord send when they restart) is resumed.
//
// Source: https://discord.com/developers/docs/topics/opcodes-and-status-codes#gateway-gateway-close-event-codes
var closeRules = [...]closeRule{
	{1000, identify, "normal closure", ""},
	{1001, resume, "going away", ""},
	{4000, resume, "unknown error", ""},
	{4001, resume, "unknown opcode", ""},
	{4002, resume, "decode error", ""},
	{4003, identify, "not authenticated", ""},
	{4004, fatal, "authentication failed", "the token is not valid: reset it under Bot in the developer portal and configure the new one"},
	{4005, resume, "already authenticated", ""},
	{4006, identify, "session no longer valid", ""},
	{4007, identify, "invalid sequence", ""},
	{4008, resume, "rate limited", ""},
	{4009, identify, "session timed out", ""},
	{4010, fatal, "invalid shard", "the shard number or the number of shards is wrong: every shard must be below the number of shards"},
	{4011, fatal, "sharding required", "the bot is in too many guilds for its shards: configure more of them"},
	{4012, fatal, "invalid API version", "Discord no longer serves gateway version 10: update"},
	{4013, fatal, "invalid intents", "the number configured as intents is not a sum of intents that exist"},
	{4014, fatal, "disallowed intents", "turn on the privileged intents under Bot > Privileged Gateway Intents in the developer portal, or do not ask for them"},
}

func ruleOf(code int) closeRule {
	for _, r := range closeRules {
		if r.code == code {
			return r
		}
	}
	return closeRule{code: code, verdict: resume, meaning: "connection lost"}
}

// A FatalError says that Discord closed with a code after which connecting again
// can't help until somebody changes something.
type FatalError struct {
	Code    int    // Discord's close code
	Shard   int    // that was closed
	Meaning string // of the code, in Discord's words
	Advice  string // what to change, and where
}

func (e *FatalError) Error() string {
	return fmt.Sprintf("gateway: shard %d: Discord closed with %d (%s): %s", e.Shard, e.Code, e.Meaning, e.Advice)
}

// fatalError makes the error of a fatal rule; intents are those asked for.
func fatalError(r closeRule, shard, intents int) *FatalError {
	e := &FatalError{Code: r.code, Shard: shard, Meaning: r.meaning, Advice: r.advice}
	if r.code == 4014 {
		if names := privileged(intents); names != "" {
			e.Advice += " (asked for: " + names + ")"
		}
	}
	return e
}

// privileged names the privileged ones among intents.
// Source: https://discord.com/developers/docs/events/gateway#privileged-intents
func privileged(intents int) string {
	var names []string
	for _, p := range [...]struct {
		bit  int
		name string
	}{{1, "GUILD_MEMBERS"}, {8, "GUILD_PRESENCES"}, {15, "MESSAGE_CONTENT"}} {
		if intents&(1<<p.bit) != 0 {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ", ")
}
