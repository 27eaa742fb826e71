// Waits for the messages of people in a session, and answers them.
//
//	go run ./runner ADDRESS SESSION_ID
//
// Kill it at any point and start it again: the new runner ends a run that was cut off.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

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
	runner := ledger.NewRunner(client, sessionID, ledger.RunnerOptions{})
	defer runner.Close(ctx)
	return runner.Serve(ctx, answer)
}

// answer may not return before its work is over. The context ends when the run is cancelled.
func answer(_ context.Context, turn *ledger.Turn) error {
	said := make([]string, len(turn.Messages))
	for at, message := range turn.Messages {
		said[at] = textOf(message.Payload)
	}
	text := "You said: " + strings.Join(said, "\n") // Here an agent would think.
	turn.Writer.Event(map[string]string{
		"type": "TEXT_MESSAGE_CHUNK", "messageId": turn.RunID, "role": "assistant", "delta": text,
	})
	turn.Writer.Message(ledger.Message{Type: "assistant", Payload: text, Key: turn.RunID})
	return nil
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
