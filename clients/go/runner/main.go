// Waits for the messages of people in a session, and answers them.
//
//	go run ./runner ADDRESS SESSION_ID
//
// Kill it at any point and start it again: the new runner ends a run that was cut off.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
	"github.com/session-ledger/session-ledger/clients/go/ledger"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: runner ADDRESS SESSION_ID")
	}
	withoutTLS := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient(os.Args[1], append(ledger.DialOptions(), withoutTLS)...)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(run(context.Background(), ambient.NewSessionServiceClient(connection), os.Args[2]))
}

// run ends only with an error, for example when a later runner has taken over the session.
func run(ctx context.Context, client ambient.SessionServiceClient, sessionID string) error {
	epoch := uint64(time.Now().UnixMilli()) // Higher at each start, so that it takes over.
	for {
		runID := rand.Text()
		// The wait is shorter than the deadline of Push. A claim that Push repeats has the same runId.
		turn, err := ledger.Push(ctx, client.ClaimTurn, &ambient.ClaimTurnRequest{
			SessionId: sessionID, ProducerEpoch: epoch, RunStarted: printed(fields{"runId": runID}),
			Wait: durationpb.New(5 * time.Second), Redeliver: true,
		})
		if err != nil {
			return err
		}
		if turn.RunStarted != nil {
			if err := answer(ctx, client, sessionID, runID, turn); err != nil {
				return err
			}
		}
	}
}

func answer(
	ctx context.Context, client ambient.SessionServiceClient, sessionID, runID string, turn *ambient.ClaimTurnResponse,
) error {
	said := make([]string, len(turn.Messages))
	for at, message := range turn.Messages {
		said[at] = textOf(message.Payload)
	}
	text := "You said: " + strings.Join(said, "\n") // Here an agent would think.
	push := func(eventType string, event fields) error {
		_, err := ledger.Push(ctx, client.PushSessionEvent, &ambient.PushSessionEventRequest{
			SessionId: sessionID, EventType: eventType, Payload: printed(event),
			ProducerEpoch: &turn.ProducerEpoch, IdempotencyKey: runID + "/" + eventType,
		})
		return err
	}
	if err := push("TEXT_MESSAGE_CHUNK", fields{"messageId": runID, "role": "assistant", "delta": text}); err != nil {
		return err
	}
	_, err := ledger.Push(ctx, client.PushSessionMessage, &ambient.PushSessionMessageRequest{
		SessionId: sessionID, EventType: "assistant", Payload: text,
		ProducerEpoch: &turn.ProducerEpoch, IdempotencyKey: runID,
	})
	if err != nil {
		return err
	}
	return push("RUN_FINISHED", fields{"threadId": sessionID, "runId": runID})
}

type fields map[string]string

func printed(event fields) string {
	text, _ := json.Marshal(event) // Strings cannot fail.
	return string(text)
}

// textOf reads a RunAgentInput, which the payload is if the message was typed over AG-UI.
func textOf(payload string) string {
	var input struct{ Messages []struct{ Content string } }
	if json.Unmarshal([]byte(payload), &input) != nil || input.Messages == nil {
		return payload
	}
	texts := make([]string, len(input.Messages))
	for at, message := range input.Messages {
		texts[at] = message.Content
	}
	return strings.Join(texts, "\n")
}
