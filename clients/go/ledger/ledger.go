// Package ledger has the calls that have to outlive a connection: a push that is repeated until it is
// answered, a stream of events and a watch that go on where they were. Copy what you need.
package ledger

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
)

// DialOptions of a connection; the credentials come beside them.
func DialOptions() []grpc.DialOption {
	reconnect := backoff.DefaultConfig
	reconnect.MaxDelay = 2 * time.Second
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		// A watch may be silent for hours, so only a ping finds out that its peer is gone.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
	}
}

// Token is asked for a bearer token before each call and each stream; grpc.WithPerRPCCredentials takes
// it. gRPC sends none without TLS.
type Token func(context.Context) (string, error)

// GetRequestMetadata is what gRPC asks. A source that fails is one to ask again.
func (token Token) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	bearer, err := token(ctx)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "the source of tokens failed: %v", err)
	}
	return map[string]string{"authorization": "Bearer " + bearer}, nil
}

// RequireTransportSecurity keeps tokens off the wire where it has no TLS.
func (Token) RequireTransportSecurity() bool { return true }

// Push appends one row. Its idempotency key makes it safe to repeat what was not answered.
func Push[Request, Row any](
	ctx context.Context,
	method func(context.Context, Request, ...grpc.CallOption) (Row, error),
	request Request,
) (Row, error) {
	for {
		began := time.Now()
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		row, err := method(attempt, request)
		cancel()
		if !pause(ctx, err, began) {
			return row, err
		}
	}
}

// StreamEvents sends each event as it comes, and again after a break what was not committed. It returns
// when the channel is closed and all of them are.
//
// With an epoch of your own, the channel begins with the first event of that epoch: those that the
// service has already are not sent. With 0 the service gives a new one out, and it stays ours.
func StreamEvents(
	ctx context.Context,
	client ambient.SessionServiceClient,
	sessionID string,
	epoch uint64,
	payloads <-chan string,
	answered func(*ambient.PushSessionEventsResponse),
) error {
	stream := eventStream{client: client, sessionID: sessionID, payloads: payloads, epoch: epoch}
	for {
		began := time.Now()
		err := stream.attempt(ctx, answered)
		if epoch == 0 && status.Code(err) == codes.Aborted {
			// A stream was replaced. Nobody else knows an epoch that was given to us, so it was by a call
			// of ours that came late. An epoch that we chose can be somebody else's too.
			err = status.Error(codes.Unavailable, err.Error())
		}
		if !pause(ctx, err, began) {
			return err
		}
	}
}

// WatchEvents gives every row after a number, once and in order, until it is told that there need be no
// more.
func WatchEvents(
	ctx context.Context,
	client ambient.SessionServiceClient,
	sessionID string,
	afterSeq int64,
	take func(*ambient.SessionEvent) (more bool),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		began := time.Now()
		request := &ambient.WatchSessionEventsRequest{SessionId: sessionID, AfterSeq: afterSeq}
		watch, err := client.WatchSessionEvents(ctx, request)
		for err == nil {
			var row *ambient.SessionEvent
			if row, err = watch.Recv(); err == nil {
				afterSeq = row.Seq + int64(row.EventCount) - 1
				if !take(row) {
					return nil
				}
			}
		}
		if !pause(ctx, err, began) {
			return err
		}
	}
}

// eventStream is what one attempt leaves to the next. Every event is kept until the end; a stream that
// runs for days would forget what Committed covers.
type eventStream struct {
	client    ambient.SessionServiceClient
	sessionID string
	payloads  <-chan string
	emitted   []string // Event number n is emitted[n-1].
	epoch     uint64   // 0 until the service gave one out.
}

func (s *eventStream) attempt(ctx context.Context, answered func(*ambient.PushSessionEventsResponse)) error {
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, err := s.client.PushSessionEvents(ctx)
	if err != nil {
		return err
	}
	open := &ambient.Open{SessionId: s.sessionID, ProducerEpoch: s.epoch}
	frame := &ambient.PushSessionEventsRequest{Frame: &ambient.PushSessionEventsRequest_Open{Open: open}}
	_ = call.Send(frame) // A call that failed tells Recv why.
	for {
		answer, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if opened := answer.GetOpened(); opened != nil {
			s.epoch = opened.ProducerEpoch
			sending.Go(func() { s.send(call, opened.LastClientSeq) })
		}
		answered(answer)
	}
}

func (s *eventStream) send(call ambient.SessionService_PushSessionEventsClient, number uint64) {
	for {
		for number >= uint64(len(s.emitted)) {
			select {
			case payload, more := <-s.payloads:
				if !more {
					_ = call.CloseSend()
					return
				}
				s.emitted = append(s.emitted, payload)
			case <-call.Context().Done():
				return
			}
		}
		events := []*ambient.RawEvent{{Payload: s.emitted[number]}}
		number++
		batch := &ambient.Batch{FirstClientSeq: number, Events: events}
		frame := &ambient.PushSessionEventsRequest{Frame: &ambient.PushSessionEventsRequest_Batch{Batch: batch}}
		if call.Send(frame) != nil {
			return
		}
	}
}

// A stream that lived longer had a token that was accepted, and has ended since.
const acceptedAfter = time.Second

// pause waits until it is time to try again, or says that this is no use.
func pause(ctx context.Context, err error, began time.Time) (again bool) {
	failure := status.Convert(err)
	switch failure.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		again = true
	case codes.Unauthenticated:
		again = time.Since(began) > acceptedAfter
	}
	delay := 50*time.Millisecond + rand.N(450*time.Millisecond)
	for _, detail := range failure.Details() {
		// The service sends it where the same call can succeed later.
		if asked, ok := detail.(*errdetails.RetryInfo); ok {
			again = true
			delay += asked.RetryDelay.AsDuration()
		}
	}
	if !again {
		return false
	}
	select {
	case <-time.After(delay):
		return true
	case <-ctx.Done():
		return false
	}
}
