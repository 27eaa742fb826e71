package ledger

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
)

// ReadOptions of ReadEvents and ReadMessages. The zero value reads the session as it is.
type ReadOptions struct {
	// Rows after this number; 0: from the first one.
	AfterSeq int64
	// Go on with new rows, until ctx ends.
	Follow bool
	// Events as the agent gave them, instead of merged rows. ReadEvents only.
	Expand bool
}

// LastSeq is the position after a row: read on with it as AfterSeq.
func LastSeq(row *ambient.SessionEvent) int64 {
	return row.Seq + int64(row.EventCount) - 1
}

// ReadEvents gives each row once and in order, also after broken connections. An error is the last
// element.
func ReadEvents(
	ctx context.Context, client ambient.SessionServiceClient, sessionID string, options ReadOptions,
) iter.Seq2[*ambient.SessionEvent, error] {
	watch := func(ctx context.Context, after int64) (grpc.ServerStreamingClient[ambient.SessionEvent], error) {
		return client.WatchSessionEvents(ctx, &ambient.WatchSessionEventsRequest{
			SessionId: sessionID, AfterSeq: after, SnapshotOnly: !options.Follow, Expand: options.Expand,
		})
	}
	return read(ctx, client, sessionID, options, watch, LastSeq)
}

// ReadMessages is the same for messages.
func ReadMessages(
	ctx context.Context, client ambient.SessionServiceClient, sessionID string, options ReadOptions,
) iter.Seq2[*ambient.SessionMessage, error] {
	watch := func(ctx context.Context, after int64) (grpc.ServerStreamingClient[ambient.SessionMessage], error) {
		return client.WatchSessionMessages(ctx, &ambient.WatchSessionMessagesRequest{
			SessionId: sessionID, AfterSeq: after, SnapshotOnly: !options.Follow,
		})
	}
	return read(ctx, client, sessionID, options, watch, (*ambient.SessionMessage).GetSeq)
}

func read[Row any](
	ctx context.Context,
	client ambient.SessionServiceClient,
	sessionID string,
	options ReadOptions,
	watch func(context.Context, int64) (grpc.ServerStreamingClient[Row], error),
	lastSeq func(*Row) int64,
) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // Ends the watch.
		after := options.AfterSeq
		for {
			began := time.Now()
			rows, err := watch(ctx, after)
			for err == nil {
				var row *Row
				if row, err = rows.Recv(); err == nil {
					after = lastSeq(row)
					if !yield(row, nil) {
						return
					}
				}
			}
			if errors.Is(err, io.EOF) {
				err = errEndedEarly
				if !options.Follow {
					if after == options.AfterSeq { // An unknown session has no rows either.
						_, err = Push(ctx, client.GetSession, &ambient.GetSessionRequest{Id: sessionID})
						if err != nil {
							yield(nil, err)
						}
					}
					return
				}
			}
			if !pause(ctx, err, began) {
				yield(nil, err)
				return
			}
		}
	}
}
