// Streams an agent's events into a session and watches them come out, whatever breaks meanwhile.
//
//	go run ./example ADDRESS SESSION_ID < events.jsonl
//
// Takes AG-UI events as JSON lines, the last of them RUN_FINISHED, and sends each as soon as it is
// there. Prints the answers of the service, and the rows that the watch delivers, as JSON lines.
//
// LEDGER_TOKEN_FILE names a file with a bearer token, which is read for each call; LEDGER_CA_FILE one
// with the authorities to trust, in place of the system's. Without both it speaks without TLS.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
	"github.com/session-ledger/session-ledger/clients/go/ledger"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address, sessionID string) error {
	doors, err := doorOptions(os.Getenv("LEDGER_TOKEN_FILE"), os.Getenv("LEDGER_CA_FILE"))
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient(address, append(ledger.DialOptions(), doors...)...)
	if err != nil {
		return err
	}
	defer connection.Close()
	client := ambient.NewSessionServiceClient(connection)

	message, err := ledger.Push(ctx, client.PushSessionMessage, &ambient.PushSessionMessageRequest{
		SessionId: sessionID, EventType: "user", Payload: "Go on.", IdempotencyKey: "message-1",
	})
	if err != nil {
		return err
	}
	printLine(message)
	_, err = ledger.Push(ctx, client.PushSessionEvent, &ambient.PushSessionEventRequest{
		SessionId: sessionID, EventType: "RUN_STARTED", IdempotencyKey: "run-1",
		Payload: fmt.Sprintf(`{"threadId":%q,"runId":"run-1"}`, sessionID),
	})
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return ledger.WatchEvents(ctx, client, sessionID, 0, func(row *ambient.SessionEvent) bool {
			printLine(row)
			return row.EventType != "RUN_FINISHED"
		})
	})
	group.Go(func() error {
		return ledger.StreamEvents(ctx, client, sessionID, lines(), func(answer *ambient.PushSessionEventsResponse) {
			printLine(answer)
		})
	})
	return group.Wait()
}

// doorOptions are TLS and a token, or neither.
func doorOptions(tokenFile, caFile string) ([]grpc.DialOption, error) {
	if tokenFile == "" && caFile == "" {
		return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, nil
	}
	var options []grpc.DialOption
	if tokenFile != "" {
		token := ledger.Token(func(context.Context) (string, error) {
			text, err := os.ReadFile(tokenFile)
			return strings.TrimSpace(string(text)), err
		})
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	config := &tls.Config{}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", caFile)
		}
	}
	return append(options, grpc.WithTransportCredentials(credentials.NewTLS(config))), nil
}

// lines of the standard input, each as soon as it is there.
func lines() <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(os.Stdin)
		scanner.Buffer(nil, 4<<20)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		if err := scanner.Err(); err != nil {
			log.Fatal(err)
		}
	}()
	return lines
}

func printLine(message proto.Message) {
	line, err := protojson.Marshal(message)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}
