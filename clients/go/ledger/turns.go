package ledger

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
)

// Cancelled is the cause of the context of a turn whose run somebody has cancelled.
type Cancelled struct{ Reason string }

func (c *Cancelled) Error() string { return "the run was cancelled: " + c.Reason }

const (
	// Shorter than the deadline of Push.
	claimWait = 5 * time.Second
	// How long a runner that is stopped may take to store the end of its run.
	stopWithin = 10 * time.Second
)

// RunnerOptions of NewRunner. The zero value is complete.
type RunnerOptions struct {
	// The runner's generation; a later runner takes over. 0: from the time.
	Epoch uint64
	// The most messages of a turn. 0: 10.
	MessagesMax int32
	// Called with each record that is not accepted.
	OnRefused func(Refusal)
}

// Runner claims the messages of people in a session, turn by turn. A runner that was killed is replaced
// by the next one, which ends the lost run and gets its messages again, if nothing was answered.
type Runner struct {
	client    ambient.SessionServiceClient
	sessionID string
	options   RunnerOptions
	writer    *Writer

	mu   sync.Mutex
	turn *Turn
	// A cancel that came before the answer of its claim.
	cancelledRun, cancelReason string
}

// Turn is the waiting messages of people, and the run that answers them.
type Turn struct {
	RunID    string
	Messages []*ambient.SessionMessage
	// The run that this one has replaced.
	LostRunID string
	// Takes the events of the run. RUN_STARTED is stored already; Finish and Fail end it.
	Writer *Writer

	sessionID string
	ctx       context.Context
	cancel    context.CancelCauseFunc
}

// NewRunner makes a runner. Close it.
func NewRunner(client ambient.SessionServiceClient, sessionID string, options RunnerOptions) *Runner {
	if options.Epoch == 0 {
		options.Epoch = newEpoch()
	}
	return &Runner{client: client, sessionID: sessionID, options: options}
}

// Serve gives each turn to a function. The context of the function ends when the run is cancelled or the
// runner is replaced; pass it to the model and the tools. Nil ends the run with RUN_FINISHED, an error
// with RUN_ERROR, and the next turn follows.
//
// Serve ends with ctx, with code RUNNER_STOPPED for an open run; and when a later runner takes over. It
// goes on when a cancelled run is so late that the service has ended it.
func (r *Runner) Serve(ctx context.Context, answer func(context.Context, *Turn) error) error {
	for {
		turn, err := r.Next(ctx, time.Minute)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if turn == nil {
			continue
		}
		failure := answer(turn.Context(), turn)
		ending, stop := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		if ctx.Err() == nil {
			stop()
			ending, stop = context.WithCancel(ctx)
		}
		if failure == nil || errors.As(context.Cause(turn.Context()), new(*Cancelled)) {
			err = turn.Finish(ending)
		} else {
			code := ""
			if ctx.Err() != nil {
				code = "RUNNER_STOPPED"
			}
			err = turn.Fail(ending, failure, code)
		}
		stop()
		if err != nil && !r.renewed(ctx, turn, err) {
			return err
		}
	}
}

// renewed is true, and the next claim has a higher epoch, if the service has ended a cancelled run because
// its agent needed longer than CANCEL_GRACE. An error that is not of that kind ends the runner.
func (r *Runner) renewed(ctx context.Context, turn *Turn, err error) bool {
	if stateAfter(err) != Fenced {
		return false
	}
	ends, err := Push(ctx, r.client.ListSessionEvents, &ambient.ListSessionEventsRequest{
		SessionId: r.sessionID, RunId: turn.RunID, EventTypes: []string{"RUN_FINISHED"}, PageSize: 1,
	})
	if err != nil || len(ends.Items) == 0 { // A later runner ends a lost run with RUN_ERROR.
		return false
	}
	r.writer.Close(ctx)
	r.writer = nil
	r.options.Epoch = max(newEpoch(), r.options.Epoch+2) // The service has taken the next one.
	return true
}

// Next claims the next turn. Nil: no message came in time. An answer that was lost is asked for again.
func (r *Runner) Next(ctx context.Context, wait time.Duration) (*Turn, error) {
	runID := rand.Text()
	started, _ := json.Marshal(map[string]string{"runId": runID}) // Strings cannot fail.
	until := time.Now().Add(wait)
	for {
		left := min(claimWait, time.Until(until))
		claim, err := Push(ctx, r.client.ClaimTurn, &ambient.ClaimTurnRequest{
			SessionId: r.sessionID, ProducerEpoch: r.options.Epoch, RunStarted: string(started), Redeliver: true,
			MessagesMax: r.options.MessagesMax, Wait: durationpb.New(max(left, time.Millisecond)),
		})
		if err != nil {
			return nil, err
		}
		if claim.RunStarted != nil {
			return r.begin(ctx, runID, claim), nil
		}
		if time.Until(until) <= 0 {
			return nil, nil
		}
	}
}

// Close stores what waits, and ends the runner.
func (r *Runner) Close(ctx context.Context) {
	if r.writer != nil {
		r.writer.Close(ctx)
	}
}

func (r *Runner) begin(ctx context.Context, runID string, claim *ambient.ClaimTurnResponse) *Turn {
	if r.writer == nil { // Its stream may not come before the claim, which takes over.
		r.writer = NewWriter(r.client, r.sessionID, WriterOptions{
			Epoch: r.options.Epoch, OnRefused: r.options.OnRefused, OnCancel: r.cancelled, onEnd: r.ended,
		})
	}
	running, cancel := context.WithCancelCause(ctx)
	turn := &Turn{
		RunID: runID, Messages: claim.Messages, LostRunID: claim.LostRunId, Writer: r.writer,
		sessionID: r.sessionID, ctx: running, cancel: cancel,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn = turn
	if r.cancelledRun == turn.RunID {
		cancel(&Cancelled{r.cancelReason})
	}
	if stats := r.writer.Stats(); stats.Err != nil {
		cancel(stats.Err)
	}
	return turn
}

func (r *Runner) cancelled(runID, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelledRun, r.cancelReason = runID, reason
	if r.turn != nil && r.turn.RunID == runID {
		r.turn.cancel(&Cancelled{reason})
	}
}

func (r *Runner) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn != nil {
		r.turn.cancel(err)
	}
}

// Context of the run: its cause is a *Cancelled when somebody has cancelled it, or the error that ended
// the writer.
func (t *Turn) Context() context.Context { return t.ctx }

// Finish ends the run, with the outcome cancelled after a cancel, and waits until that is stored.
func (t *Turn) Finish(ctx context.Context) error {
	outcome := "success"
	if errors.As(context.Cause(t.ctx), new(*Cancelled)) {
		outcome = "cancelled"
	}
	return t.end(ctx, map[string]any{
		"type": "RUN_FINISHED", "threadId": t.sessionID, "runId": t.RunID, "outcome": map[string]string{"type": outcome},
	})
}

// Fail ends the run with RUN_ERROR, and waits until that is stored. The code may be empty.
func (t *Turn) Fail(ctx context.Context, failure error, code string) error {
	event := map[string]any{"type": "RUN_ERROR", "runId": t.RunID, "message": failure.Error()}
	if code != "" {
		event["code"] = code
	}
	return t.end(ctx, event)
}

func (t *Turn) end(ctx context.Context, event map[string]any) error {
	t.Writer.Event(event)
	complete, stats := t.Writer.Flush(ctx)
	t.cancel(context.Canceled)
	if stats.Err != nil {
		return stats.Err
	}
	if !complete {
		return ctx.Err()
	}
	return nil
}
