// Package ledger is a client of the session ledger for programs that drive agents. A Writer stores the
// events of an agent, ReadEvents and ReadMessages give a session back, and a Runner claims the messages
// of people and hears cancels. All of them go on after a broken connection, where they were.
//
// docs/clients.md of the repository has the rules.
package ledger

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// answerBytesMax has room for the largest payload that a service can be configured to take, 16 MiB.
const answerBytesMax = 16_801_520

// DialOptions of a connection; the credentials come beside them.
func DialOptions() []grpc.DialOption {
	reconnect := backoff.DefaultConfig
	reconnect.MaxDelay = 2 * time.Second
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(answerBytesMax)),
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

// Reason of an error of the service, for programs: STALE_EPOCH, SESSION_NOT_FOUND and so on. Empty: none.
func Reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}

// newEpoch is above all epochs of earlier writers, and no other writer has it.
func newEpoch() uint64 {
	return uint64(time.Now().UnixMilli())<<20 | rand.Uint64N(1<<20)
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
