// The driver of the Go client for test/conformance. docs/clients.md of the repository has the protocol.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
	"github.com/session-ledger/session-ledger/clients/go/ledger"
)

type command struct {
	ID        int
	Do        string
	Address   string
	Session   string
	Epoch     string
	BytesMax  int `json:"bytes_max"`
	Replay    bool
	Event     json.RawMessage
	Type      string
	Payload   string
	TimeoutMs int `json:"timeout_ms"`
	Stream    string
	After     int64
	Until     int64
	Expand    bool
	Follow    bool
}

type fields map[string]any

type driver struct {
	client    ambient.SessionServiceClient
	sessionID string
	writer    *ledger.Writer
	next      func() (item, error, bool)
	runner    *ledger.Runner
	turn      *ledger.Turn

	mu      sync.Mutex
	reasons []string
}

func main() {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 4<<20)
	d := &driver{reasons: []string{}}
	for scanner.Scan() {
		var asked command
		err := json.Unmarshal(scanner.Bytes(), &asked)
		answered := fields{"id": asked.ID}
		if err == nil {
			answered["answer"], err = d.do(asked)
		}
		if err != nil {
			delete(answered, "answer")
			answered["error"] = fields{
				"code": codeNames[status.Code(err)], "reason": ledger.Reason(err), "message": err.Error(),
			}
		}
		line, _ := json.Marshal(answered)
		fmt.Println(string(line))
	}
}

// The spelling of the specification of gRPC.
var codeNames = []string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

func (d *driver) do(asked command) (any, error) {
	wait := time.Duration(asked.TimeoutMs) * time.Millisecond
	switch asked.Do {
	case "hello":
		return d.hello(asked)
	case "writer.open":
		epoch, _ := strconv.ParseUint(asked.Epoch, 10, 63)
		d.writer = ledger.NewWriter(d.client, d.sessionID, ledger.WriterOptions{
			Epoch: epoch, BytesMax: asked.BytesMax, Replay: asked.Replay, OnRefused: d.refused,
		})
	case "writer.event":
		d.writer.Event(given(asked.Event))
	case "writer.message":
		d.writer.Message(ledger.Message{Type: asked.Type, Payload: asked.Payload})
	case "writer.flush":
		return d.settled(wait, d.writer.Flush)
	case "writer.close":
		return d.settled(wait, d.writer.Close)
	case "reader.open":
		d.read(asked)
	case "reader.next":
		return d.readUntil(asked.Until)
	case "turns.open":
		epoch, _ := strconv.ParseUint(asked.Epoch, 10, 63)
		d.runner = ledger.NewRunner(d.client, d.sessionID, ledger.RunnerOptions{Epoch: epoch})
	case "turns.next":
		return d.nextTurn(wait)
	case "turns.event":
		d.turn.Writer.Event(given(asked.Event))
	case "turns.cancelled":
		return d.cancelled(wait), nil
	case "turns.finish":
		return fields{}, d.turn.Finish(context.Background())
	case "turns.close":
		d.runner.Close(context.Background())
	case "reader.close":
	default:
		return nil, fmt.Errorf("unknown command %s", asked.Do)
	}
	return fields{}, nil
}

func (d *driver) hello(asked command) (any, error) {
	withoutTLS := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient(asked.Address, append(ledger.DialOptions(), withoutTLS)...)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.reasons = []string{}
	d.mu.Unlock()
	d.client, d.sessionID = ambient.NewSessionServiceClient(connection), asked.Session
	return fields{"features": []string{"writer", "messages", "replay", "reader", "turns"}}, nil
}

// given is a text that is sent as it is, or an object.
func given(event json.RawMessage) any {
	var text string
	if json.Unmarshal(event, &text) == nil {
		return text
	}
	return event
}

func (d *driver) refused(refusal ledger.Refusal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reasons = append(d.reasons, refusal.Reason)
}

func (d *driver) settled(
	wait time.Duration, settle func(context.Context) (bool, ledger.Stats),
) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	complete, stats := settle(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	return fields{
		"complete": complete, "state": stats.State, "epoch": strconv.FormatUint(stats.Epoch, 10),
		"committed": stats.Events.Committed, "refused": stats.Events.Refused,
		"dropped": stats.Events.Dropped, "pending": stats.Events.Pending, "reasons": d.reasons,
	}, nil
}

type item struct {
	Seq     int64  `json:"seq"`
	LastSeq int64  `json:"last_seq"`
	Type    string `json:"type"`
	Payload string `json:"payload"`
}

func (d *driver) read(asked command) {
	options := ledger.ReadOptions{AfterSeq: asked.After, Follow: asked.Follow, Expand: asked.Expand}
	items := func(yield func(item, error) bool) {
		for row, err := range ledger.ReadEvents(context.Background(), d.client, d.sessionID, options) {
			if err != nil {
				yield(item{}, err)
			} else if !yield(item{row.Seq, ledger.LastSeq(row), row.EventType, row.Payload}, nil) {
				return
			}
		}
	}
	if asked.Stream == "messages" {
		items = func(yield func(item, error) bool) {
			for row, err := range ledger.ReadMessages(context.Background(), d.client, d.sessionID, options) {
				if err != nil {
					yield(item{}, err)
				} else if !yield(item{row.Seq, row.Seq, row.EventType, row.Payload}, nil) {
					return
				}
			}
		}
	}
	d.next, _ = iter.Pull2(items)
}

func (d *driver) readUntil(until int64) (any, error) {
	items := []item{}
	for {
		row, err, more := d.next()
		if err != nil {
			return nil, err
		}
		if !more {
			return fields{"items": items, "ended": true}, nil
		}
		items = append(items, row)
		if row.LastSeq >= until {
			return fields{"items": items, "ended": false}, nil
		}
	}
}

func (d *driver) nextTurn(wait time.Duration) (any, error) {
	turn, err := d.runner.Next(context.Background(), wait)
	if err != nil || turn == nil {
		return fields{"turn": nil}, err
	}
	d.turn = turn
	said := make([]string, len(turn.Messages))
	for at, message := range turn.Messages {
		said[at] = message.Payload
	}
	return fields{"turn": fields{"run_id": turn.RunID, "messages": said, "lost_run_id": turn.LostRunID}}, nil
}

func (d *driver) cancelled(wait time.Duration) fields {
	select {
	case <-d.turn.Context().Done():
	case <-time.After(wait):
	}
	var cancel *ledger.Cancelled
	if errors.As(context.Cause(d.turn.Context()), &cancel) {
		return fields{"cancelled": true, "reason": cancel.Reason}
	}
	return fields{"cancelled": false, "reason": ""}
}
