package gateway

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
)

// identifyPacket is the message that begins a session.
// Source: https://discord.com/developers/docs/events/gateway-events#identify
func identifyPacket(c Config) ([]byte, error) {
	type properties struct {
		OS      string `json:"os"`
		Browser string `json:"browser"`
		Device  string `json:"device"`
	}
	type identify struct {
		Token          string          `json:"token"`
		Intents        int             `json:"intents"`
		Shard          [2]int          `json:"shard"`
		LargeThreshold int             `json:"large_threshold,omitempty"`
		Presence       json.RawMessage `json:"presence,omitempty"`
		Properties     properties      `json:"properties"`
	}
	packet, err := json.Marshal(struct {
		Op int      `json:"op"`
		D  identify `json:"d"`
	}{opIdentify, identify{
		Token:          c.Token,
		Intents:        c.Intents,
		Shard:          [2]int{c.Shard, c.Shards},
		LargeThreshold: c.LargeThreshold,
		Presence:       c.Presence,
		Properties:     properties{runtime.GOOS, "sluice", "sluice"},
	}})
	if err != nil {
		return nil, fmt.Errorf("identify: %w", err)
	}
	if len(packet) > maxSendBytes {
		return nil, fmt.Errorf("identify has %d bytes, Discord takes %d: make the presence smaller", len(packet), maxSendBytes)
	}
	return packet, nil
}

// resumePacket is the message that goes on with a session.
// Source: https://discord.com/developers/docs/events/gateway-events#resume
func resumePacket(token string, s Session) ([]byte, error) {
	type resume struct {
		Token     string `json:"token"`
		SessionID string `json:"session_id"`
		Seq       int64  `json:"seq"`
	}
	packet, err := json.Marshal(struct {
		Op int    `json:"op"`
		D  resume `json:"d"`
	}{opResume, resume{token, s.ID, s.Sequence}})
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	if len(packet) > maxSendBytes {
		return nil, fmt.Errorf("resume has %d bytes, Discord takes %d: the session id is not one of Discord's", len(packet), maxSendBytes)
	}
	return packet, nil
}

// appendHeartbeat appends a heartbeat; a sequence of 0 is written as null.
// Source: https://discord.com/developers/docs/events/gateway-events#heartbeat
func appendHeartbeat(b []byte, sequence int64) []byte {
	b = append(b, `{"op":1,"d":`...)
	if sequence == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, sequence, 10)
	}
	return append(b, '}')
}
