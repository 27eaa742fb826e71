// LEDGER_ADDRESS names a running service without TLS and tokens; test/ci/go-client.test.ts starts one.
package ledger_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
	"github.com/session-ledger/session-ledger/clients/go/ledger"
)

func clientOf(t *testing.T, address string) ambient.SessionServiceClient {
	t.Helper()
	withoutTLS := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient(address, append(ledger.DialOptions(), withoutTLS)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return ambient.NewSessionServiceClient(connection)
}

func service(t *testing.T) (context.Context, ambient.SessionServiceClient, string) {
	t.Helper()
	address := os.Getenv("LEDGER_ADDRESS")
	if address == "" {
		t.Skip("LEDGER_ADDRESS names no service")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx, clientOf(t, address), "go-" + rand.Text()
}

func say(ctx context.Context, t *testing.T, client ambient.SessionServiceClient, sessionID, text string) {
	t.Helper()
	_, err := ledger.Push(ctx, client.PushSessionMessage, &ambient.PushSessionMessageRequest{
		SessionId: sessionID, EventType: "user", Payload: text, IdempotencyKey: rand.Text(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// endings of the runs of a session, as they are stored.
func endings(ctx context.Context, t *testing.T, client ambient.SessionServiceClient, sessionID string) []string {
	t.Helper()
	var found []string
	for row, err := range ledger.ReadEvents(ctx, client, sessionID, ledger.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		var event struct {
			Type, Code, Message string
			Outcome             struct{ Type string }
		}
		if json.Unmarshal([]byte(row.Payload), &event) != nil {
			t.Fatalf("no event: %s", row.Payload)
		}
		if event.Type == "RUN_FINISHED" || event.Type == "RUN_ERROR" {
			found = append(found, strings.Join([]string{event.Type, event.Outcome.Type, event.Code}, " "))
		}
	}
	return found
}

func TestServeEndsEachRunAsItWent(t *testing.T) {
	ctx, client, sessionID := service(t)
	say(ctx, t, client, sessionID, "answer")
	runner := ledger.NewRunner(client, sessionID, ledger.RunnerOptions{})
	defer runner.Close(ctx)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var said []string
	err := runner.Serve(serving, func(running context.Context, turn *ledger.Turn) error {
		text := turn.Messages[0].Payload
		said = append(said, text)
		switch text {
		case "answer":
			say(ctx, t, client, sessionID, "fail")
		case "fail":
			say(ctx, t, client, sessionID, "wait for a cancel")
			return errors.New("the model is away")
		case "wait for a cancel":
			_, err := client.CancelRun(ctx, &ambient.CancelRunRequest{
				SessionId: sessionID, RunId: turn.RunID, Reason: "enough",
			})
			if err != nil {
				return err
			}
			<-running.Done()
			var cancelled *ledger.Cancelled
			if !errors.As(context.Cause(running), &cancelled) || cancelled.Reason != "enough" {
				t.Errorf("the cause is %v", context.Cause(running))
			}
			say(ctx, t, client, sessionID, "stop")
			return context.Cause(running)
		default:
			stop()
			<-running.Done()
			return running.Err()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Serve ended with %v", err)
	}
	expected := []string{"answer", "fail", "wait for a cancel", "stop"}
	if !slices.Equal(said, expected) {
		t.Errorf("turns %q, expected %q", said, expected)
	}
	expected = []string{"RUN_FINISHED success ", "RUN_ERROR  ", "RUN_FINISHED cancelled ", "RUN_ERROR  RUNNER_STOPPED"}
	if found := endings(ctx, t, client, sessionID); !slices.Equal(found, expected) {
		t.Errorf("runs ended with %q, expected %q", found, expected)
	}
}

// Bug: Serve ended with STALE_EPOCH, and nobody answered the next message.
func TestServeGoesOnWhenTheServiceHasEndedACancelledRun(t *testing.T) {
	ctx, client, sessionID := service(t)
	say(ctx, t, client, sessionID, "late")
	runner := ledger.NewRunner(client, sessionID, ledger.RunnerOptions{Epoch: 5})
	defer runner.Close(ctx)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	err := runner.Serve(serving, func(running context.Context, turn *ledger.Turn) error {
		if turn.Messages[0].Payload == "next" {
			stop()
			return nil
		}
		// What the service does after CANCEL_GRACE: the end of the run, under a higher epoch.
		higher := uint64(6)
		end, _ := json.Marshal(map[string]any{
			"type": "RUN_FINISHED", "threadId": sessionID, "runId": turn.RunID,
			"outcome": map[string]string{"type": "cancelled"},
		})
		_, err := ledger.Push(ctx, client.PushSessionEvent, &ambient.PushSessionEventRequest{
			SessionId: sessionID, EventType: "RUN_FINISHED", Payload: string(end), ProducerEpoch: &higher,
		})
		if err != nil {
			t.Errorf("the end of the run: %v", err)
		}
		turn.Writer.Event(`{"type":"CUSTOM","name":"late","value":1}`)
		<-running.Done()
		say(ctx, t, client, sessionID, "next")
		return context.Cause(running)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Serve ended with %v", err)
	}
	expected := []string{"RUN_FINISHED cancelled ", "RUN_FINISHED success "}
	if found := endings(ctx, t, client, sessionID); !slices.Equal(found, expected) {
		t.Errorf("runs ended with %q, expected %q", found, expected)
	}
}

func TestServeEndsWhenALaterRunnerTakesOver(t *testing.T) {
	ctx, client, sessionID := service(t)
	say(ctx, t, client, sessionID, "one")
	runner := ledger.NewRunner(client, sessionID, ledger.RunnerOptions{Epoch: 5})
	defer runner.Close(ctx)
	err := runner.Serve(ctx, func(running context.Context, turn *ledger.Turn) error {
		later := ledger.NewRunner(client, sessionID, ledger.RunnerOptions{Epoch: 6})
		again, err := later.Next(ctx, time.Minute)
		if err != nil || again.LostRunID != turn.RunID || again.Messages[0].Payload != "one" {
			t.Errorf("the later runner got %v, %v", again, err)
		}
		later.Close(ctx)
		turn.Writer.Event(`{"type":"CUSTOM","name":"late","value":1}`)
		<-running.Done()
		return context.Cause(running)
	})
	if ledger.Reason(err) != "STALE_EPOCH" {
		t.Errorf("Serve ended with %v", err)
	}
}

func TestWriterNeverWaitsAndNeverGrows(t *testing.T) {
	client := clientOf(t, "127.0.0.1:1") // Nobody listens there.
	writer := ledger.NewWriter(client, "s1", ledger.WriterOptions{BytesMax: 1 << 16})
	const given = 100_000
	for range given {
		writer.Event(map[string]string{"type": "CUSTOM", "name": "n"})
	}
	pending := writer.Stats().Events.Pending
	if pending == 0 || pending > (1<<16)/128 {
		t.Errorf("%d events wait", pending)
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	complete, stats := writer.Close(now)
	if complete || stats.State != ledger.Closed || stats.Events != (ledger.Counts{Dropped: given}) {
		t.Errorf("closed %v with %+v", complete, stats)
	}
}

func TestWriterRefusesWhatCannotBeSent(t *testing.T) {
	ctx, client, sessionID := service(t)
	var refusals []ledger.Refusal
	writer := ledger.NewWriter(client, sessionID, ledger.WriterOptions{
		OnRefused: func(refusal ledger.Refusal) { refusals = append(refusals, refusal) },
	})
	writer.Event("{\"type\":\"CUSTOM\",\"name\":\"\xff\"}")
	writer.Event(func() {})
	writer.Message(ledger.Message{Type: "assistant", Payload: strings.Repeat("x", 4<<20)})
	local := len(refusals)
	writer.Message(ledger.Message{Type: "no such type!", Payload: "x"})
	writer.Event(`{"type":"CUSTOM","name":"n","value":1}`)
	complete, stats := writer.Close(ctx)
	if local != 3 || len(refusals) != 4 || refusals[3].Reason != "INVALID_REQUEST" {
		t.Errorf("refusals: %+v", refusals)
	}
	events, messages := ledger.Counts{Committed: 1, Refused: 2}, ledger.Counts{Refused: 2}
	if !complete || stats.Events != events || stats.Messages != messages || stats.Err != nil {
		t.Errorf("closed %v with %+v", complete, stats)
	}
}

func TestReaderEndsWithItsContext(t *testing.T) {
	ctx, client, sessionID := service(t)
	say(ctx, t, client, sessionID, "one")
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var last error
	for row, err := range ledger.ReadMessages(reading, client, sessionID, ledger.ReadOptions{Follow: true}) {
		if last = err; err == nil && row.Payload == "one" {
			stop()
		}
	}
	if last == nil || reading.Err() == nil {
		t.Errorf("the reader ended with %v", last)
	}
}
