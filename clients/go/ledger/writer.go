package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
)

// State of a Writer.
type State string

const (
	// Open: takes records.
	Open State = "open"
	// Fenced: a later writer took over. Nothing more is stored.
	Fenced State = "fenced"
	// Ended: the service accepts nothing more. Stats.Err says why.
	Ended State = "ended"
	// Closed by Close.
	Closed State = "closed"
)

// WriterOptions of NewWriter. The zero value is complete.
type WriterOptions struct {
	// The writer's generation, at most 2^63 - 1; a later writer fences an earlier one. 0: from the time.
	Epoch uint64
	// The events begin with the first one of the epoch, as after a restart; those that the service has
	// are not stored again.
	Replay bool
	// The room for events and messages that wait; above it new ones are dropped. 0: 64 MiB.
	BytesMax int
	// Called with each record that is not accepted.
	OnRefused func(Refusal)
	// Called when somebody has cancelled a run of this writer. Runner does more.
	OnCancel func(runID, reason string)
	// Called with each answer of the service, after its effect.
	OnAnswer func(*ambient.PushSessionEventsResponse)

	onEnd func(error)
}

// Refusal of a record. Reason is for programs.
type Refusal struct {
	Record  string // "event" or "message".
	Reason  string
	Message string
}

// Counts of the records of one kind. They add up to those that were given.
type Counts struct{ Committed, Refused, Dropped, Pending int }

// Stats of a Writer.
type Stats struct {
	State    State
	Epoch    uint64
	Events   Counts
	Messages Counts
	// The error that ended the writer.
	Err error
}

// Message for people.
type Message struct {
	// user, assistant, system and so on.
	Type    string
	Payload string
	// Makes a repeated message the same one. Empty: random.
	Key    string
	Sender *ambient.Sender
}

const (
	bytesMaxByDefault = 64 << 20
	// What a record takes besides its text.
	recordBytes = 128
	// The service's limit by default: a message with it fits in gRPC's 4 MiB.
	payloadBytesMax = 4_170_000
)

type event struct {
	payload string
	at      time.Time
	// The number of messages that are stored before it.
	after int
}

// Writer stores the events of a session, and messages for people. No call waits for the service, but
// Flush and Close; a broken connection is opened again, and each event is stored once and in order.
// Events that are given after a message are stored after it. Its methods may be called at any time,
// also by several goroutines.
//
// The functions of the options may be called by several goroutines, and may not wait for the writer.
type Writer struct {
	client    ambient.SessionServiceClient
	sessionID string
	options   WriterOptions
	ctx       context.Context
	stop      context.CancelFunc
	work      sync.WaitGroup
	// Closed when no stream of events is open any more.
	quiet chan struct{}

	mu sync.Mutex
	// Closed and replaced at each change.
	changed chan struct{}
	stats   Stats
	bytes   int
	closing bool
	flush   bool

	// Event number first+n of the epoch is events[n].
	events []event
	first  uint64
	// Every event up to this number is stored or refused.
	acknowledged uint64
	opened       bool
	eventsDone   int
	// Refused events of the epoch: those from before this writer, those of eventsDone, those above
	// acknowledged, and the number of those whose refusal was lost with a connection.
	refusedBefore int
	refusedDone   int
	refusedAhead  map[uint64]bool
	refusedUnsaid int

	messages     []Message
	messagesDone int
}

// NewWriter begins to write a session. Close it.
func NewWriter(client ambient.SessionServiceClient, sessionID string, options WriterOptions) *Writer {
	if options.BytesMax == 0 {
		options.BytesMax = bytesMaxByDefault
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &Writer{
		client: client, sessionID: sessionID, options: options, ctx: ctx, stop: stop,
		quiet: make(chan struct{}), changed: make(chan struct{}), first: 1, refusedAhead: map[uint64]bool{},
		stats: Stats{State: Open, Epoch: options.Epoch},
	}
	if options.Epoch == 0 {
		w.stats.Epoch = newEpoch()
	}
	w.work.Go(w.writeEvents)
	w.work.Go(w.writeMessages)
	return w
}

// Event takes one AG-UI event: a string or json.RawMessage as it is, anything else as encoding/json
// prints it. An event that cannot be sent counts as refused.
func (w *Writer) Event(given any) {
	payload, err := printed(given)
	w.mu.Lock()
	refusal := refusalOf("event", payload, err)
	if refusal != nil {
		w.stats.Events.Refused++
	} else if w.takes(payload) {
		w.events = append(w.events, event{payload, time.Now(), w.messagesDone + len(w.messages)})
		w.stats.Events.Pending++
		w.settle() // Of a replay, the service may have it.
	} else {
		w.stats.Events.Dropped++
	}
	w.notify()
	w.mu.Unlock()
	w.report(refusal)
}

// Message takes one message for people.
func (w *Writer) Message(message Message) {
	if message.Key == "" {
		message.Key = rand.Text()
	}
	w.mu.Lock()
	refusal := refusalOf("message", message.Payload, nil)
	if refusal != nil {
		w.stats.Messages.Refused++
	} else if w.takes(message.Payload) {
		w.messages = append(w.messages, message)
		w.stats.Messages.Pending++
	} else {
		w.stats.Messages.Dropped++
	}
	w.notify()
	w.mu.Unlock()
	w.report(refusal)
}

// Flush waits until all earlier records are settled: stored, refused or dropped. False: ctx ended before.
func (w *Writer) Flush(ctx context.Context) (complete bool, stats Stats) {
	w.mu.Lock()
	events, messages := w.eventsDone+len(w.events), w.messagesDone+len(w.messages)
	w.flush = true
	w.notify()
	w.mu.Unlock()
	complete = w.wait(ctx, func() bool {
		return w.stats.State != Open || w.eventsDone >= events && w.messagesDone >= messages
	})
	return complete, w.Stats()
}

// Close is Flush, and ends the writer. What is not settled then is dropped.
func (w *Writer) Close(ctx context.Context) (complete bool, stats Stats) {
	w.mu.Lock()
	w.closing = true // Records that come now are dropped.
	w.notify()
	w.mu.Unlock()
	complete, _ = w.Flush(ctx)
	select {
	case <-w.quiet:
	case <-ctx.Done():
	}
	w.end(Closed, nil)
	w.stop()
	w.work.Wait()
	return complete, w.Stats()
}

// Stats as they are now.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// The functions below are called with the lock, as far as they do not take it.

func (w *Writer) takes(payload string) bool {
	bytes := len(payload) + recordBytes
	if w.stats.State != Open || w.closing || w.bytes+bytes > w.options.BytesMax {
		return false
	}
	w.bytes += bytes
	return true
}

func (w *Writer) notify() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// settle counts the events that are acknowledged, and drops them.
func (w *Writer) settle() {
	settled := 0
	for _, event := range w.events {
		if w.first > w.acknowledged {
			break
		}
		switch {
		case w.refusedAhead[w.first]:
			delete(w.refusedAhead, w.first)
			w.refusedDone++
			w.stats.Events.Refused++
		case w.refusedUnsaid > 0:
			w.refusedUnsaid--
			w.refusedDone++
			w.stats.Events.Refused++
		default:
			w.stats.Events.Committed++
		}
		w.stats.Events.Pending--
		w.bytes -= len(event.payload) + recordBytes
		w.first++
		w.eventsDone++
		settled++
	}
	clear(w.events[:settled])
	w.events = w.events[settled:]
}

func (w *Writer) settleMessage(count *int) {
	w.bytes -= len(w.messages[0].Payload) + recordBytes
	w.messages = w.messages[1:]
	w.messagesDone++
	w.stats.Messages.Pending--
	*count++
	w.notify()
}

// end is for good: nothing waits after it.
func (w *Writer) end(state State, err error) {
	w.mu.Lock()
	ends := w.stats.State == Open
	if ends {
		w.stats.State, w.stats.Err = state, err
		for _, counts := range []*Counts{&w.stats.Events, &w.stats.Messages} {
			counts.Dropped += counts.Pending
			counts.Pending = 0
		}
		w.events, w.messages, w.bytes = nil, nil, 0
		w.notify()
	}
	w.mu.Unlock()
	if ends && err != nil && w.options.onEnd != nil {
		w.options.onEnd(err)
	}
}

// wait takes the lock for each look at the condition.
func (w *Writer) wait(ctx context.Context, isTrue func() bool) bool {
	for {
		w.mu.Lock()
		found, changed := isTrue(), w.changed
		w.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (w *Writer) report(refusal *Refusal) {
	if refusal != nil && w.options.OnRefused != nil {
		w.options.OnRefused(*refusal)
	}
}

func printed(given any) (string, error) {
	switch given := given.(type) {
	case string:
		return given, nil
	case json.RawMessage:
		return string(given), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(given)
	return text.String(), err
}

// refusalOf is nil for a record that can be sent.
func refusalOf(record, payload string, err error) *Refusal {
	switch {
	case err == nil && !utf8.ValidString(payload):
		err = fmt.Errorf("the %s is not UTF-8", record)
	case len(payload) > payloadBytesMax:
		err = fmt.Errorf("the %s has more than %d bytes", record, payloadBytesMax)
	}
	if err == nil {
		return nil
	}
	return &Refusal{Record: record, Reason: "INVALID_REQUEST", Message: err.Error()}
}

func (w *Writer) writeMessages() {
	for {
		var message Message
		found := w.wait(w.ctx, func() bool {
			if len(w.messages) > 0 {
				message = w.messages[0]
			}
			return len(w.messages) > 0
		})
		if !found {
			return
		}
		epoch := w.Stats().Epoch
		_, err := Push(w.ctx, w.client.PushSessionMessage, &ambient.PushSessionMessageRequest{
			SessionId: w.sessionID, EventType: message.Type, Payload: message.Payload, Sender: message.Sender,
			IdempotencyKey: message.Key, ProducerEpoch: &epoch, SentAt: timestamppb.Now(),
		})
		if w.ctx.Err() != nil {
			return
		}
		w.settleOrEnd(err)
	}
}

func (w *Writer) settleOrEnd(err error) {
	count := &w.stats.Messages.Committed
	var refusal *Refusal
	switch status.Code(err) {
	case codes.OK:
	case codes.InvalidArgument, codes.AlreadyExists, codes.PermissionDenied:
		count = &w.stats.Messages.Refused
		refusal = &Refusal{Record: "message", Reason: Reason(err), Message: err.Error()}
	default:
		w.end(stateAfter(err), err)
		return
	}
	w.mu.Lock()
	if len(w.messages) > 0 {
		w.settleMessage(count)
	}
	w.mu.Unlock()
	w.report(refusal)
}

func stateAfter(err error) State {
	switch Reason(err) {
	case "STALE_EPOCH", "STREAM_REPLACED":
		return Fenced
	}
	return Ended
}
