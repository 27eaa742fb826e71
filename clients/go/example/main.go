// Streams an agent's events into a session and watches them come out, whatever breaks meanwhile.
//
//	go run ./example ADDRESS SESSION_ID [EPOCH] < events.jsonl
//
// Takes AG-UI events as JSON lines, the last of them RUN_FINISHED, and sends each as soon as it is
// there. Prints the answers of the service, and the rows that the watch delivers, as JSON lines.
//
// The service counts the events of an epoch (a number, 1 unless given). Run this again with the same
// events, after it was killed for example: it sends only those that are not there yet. For other events
// in the same session give a higher epoch.
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
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
	"github.com/session-ledger/session-ledger/clients/go/ledger"
)

func main() {
	log.SetFlags(0)
	epoch, err := uint64(1), error(nil)
	if len(os.Args) == 4 {
		epoch, err = strconv.ParseUint(os.Args[3], 10, 63)
	}
	if len(os.Args) < 3 || len(os.Args) > 4 || err != nil {
		log.Fatal("usage: example ADDRESS SESSION_ID [EPOCH] < events.jsonl")
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], epoch); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address, sessionID string, epoch uint64) error {
	doors, err := doorOptions(os.Getenv("LEDGER_TOKEN_FILE"), os.Getenv("LEDGER_CA_FILE"))
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient(address, append(ledger.DialOptions(), doors...)...)
	if err != nil {
		return err
	}
	defer connection.Close()
	if !canConnect(ctx, connection) {
		return fmt.Errorf("cannot connect to %s: is the service running, and with TLS or without?", address)
	}
	client := ambient.NewSessionServiceClient(connection)

	message, err := ledger.Push(ctx, client.PushSessionMessage, &ambient.PushSessionMessageRequest{
		SessionId: sessionID, EventType: "user", Payload: "Go on.",
		IdempotencyKey: fmt.Sprintf("message-%d", epoch),
	})
	if err != nil {
		return err
	}
	printLine(message)
	runID := fmt.Sprintf("run-%d", epoch)
	started, err := ledger.Push(ctx, client.PushSessionEvent, &ambient.PushSessionEventRequest{
		SessionId: sessionID, EventType: "RUN_STARTED", IdempotencyKey: runID,
		Payload: fmt.Sprintf(`{"threadId":%q,"runId":%q}`, sessionID, runID),
	})
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		options := ledger.ReadOptions{AfterSeq: started.Seq - 1, Follow: true}
		for row, err := range ledger.ReadEvents(ctx, client, sessionID, options) {
			if err != nil {
				return err
			}
			printLine(row)
			if row.EventType == "RUN_FINISHED" {
				break
			}
		}
		return nil
	})
	group.Go(func() error {
		writer := ledger.NewWriter(client, sessionID, ledger.WriterOptions{
			Epoch: epoch, Replay: true,
			OnAnswer: func(answer *ambient.PushSessionEventsResponse) { printLine(answer) },
		})
		for line := range lines() {
			writer.Event(line)
		}
		_, stats := writer.Close(ctx)
		return stats.Err
	})
	return group.Wait()
}

// canConnect is false at the first failure. Calls would wait for the connection, and say nothing
// meanwhile.
func canConnect(ctx context.Context, connection *grpc.ClientConn) bool {
	connection.Connect()
	for state := connection.GetState(); state != connectivity.Ready; state = connection.GetState() {
		if state == connectivity.TransientFailure || !connection.WaitForStateChange(ctx, state) {
			return false
		}
	}
	return true
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
