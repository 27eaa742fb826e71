package ledger

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
)

// A frame has at most these, so that answers come while a long backlog is sent.
const (
	batchEventsMax = 256
	batchBytesMax  = 256 << 10
)

var errEndedEarly = status.Error(codes.Unavailable, "the service ended the stream")

// writeEvents opens a stream, again and again, until the writer is closed or the service accepts nothing
// more.
func (w *Writer) writeEvents() {
	defer close(w.quiet)
	for {
		began := time.Now()
		err := w.stream()
		if w.ctx.Err() != nil || err == nil && w.isDone() {
			return
		}
		if err == nil {
			err = errEndedEarly
		}
		if w.options.Epoch == 0 && status.Code(err) == codes.Aborted {
			// A stream was replaced. Nobody else knows an epoch that this writer has chosen, so it was by a
			// call of its own that came late. An epoch that was given to it can be another writer's too.
			err = status.Error(codes.Unavailable, err.Error())
		}
		if !pause(w.ctx, err, began) {
			if w.ctx.Err() == nil {
				w.end(stateAfter(err), err)
			}
			return
		}
	}
}

// stream is one attempt. Nil: the service ended it.
func (w *Writer) stream() error {
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	call, err := w.client.PushSessionEvents(ctx)
	if err != nil {
		return err
	}
	open := &ambient.Open{SessionId: w.sessionID, ProducerEpoch: w.Stats().Epoch}
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
		w.answered(answer)
		if opened := answer.GetOpened(); opened != nil {
			sending.Go(func() { w.send(call, opened.LastClientSeq+1) })
		}
		if w.options.OnAnswer != nil {
			w.options.OnAnswer(answer)
		}
	}
}

func (w *Writer) answered(answer *ambient.PushSessionEventsResponse) {
	w.mu.Lock()
	var refusal *Refusal
	switch frame := answer.Frame.(type) {
	case *ambient.PushSessionEventsResponse_Opened:
		w.resume(frame.Opened)
	case *ambient.PushSessionEventsResponse_Committed:
		w.acknowledged = max(w.acknowledged, frame.Committed.LastClientSeq)
		w.settle()
	case *ambient.PushSessionEventsResponse_Refused:
		number := frame.Refused.ClientSeq
		if number >= w.first && !w.refusedAhead[number] {
			w.refusedAhead[number] = true
			err := status.ErrorProto(frame.Refused.Status)
			refusal = &Refusal{Record: "event", Reason: Reason(err), Message: frame.Refused.Status.Message}
		}
	}
	w.notify()
	w.mu.Unlock()
	w.report(refusal)
	if cancel := answer.GetCancel(); cancel != nil && w.options.OnCancel != nil {
		w.options.OnCancel(cancel.RunId, cancel.Reason)
	}
}

// resume finds the position of the service, which can be before that of the writer: a database that was
// restored has lost acknowledged events. Then the others continue with the numbers that it expects.
func (w *Writer) resume(opened *ambient.Opened) {
	last := opened.LastClientSeq
	switch {
	case !w.opened && !w.options.Replay:
		w.first = last + 1
		w.refusedBefore = int(opened.Refused)
	case last+1 < w.first:
		w.first = last + 1
		w.refusedBefore = int(opened.Refused) - w.refusedDone
		clear(w.refusedAhead)
	}
	w.opened = true
	w.acknowledged = last
	known := w.refusedBefore + w.refusedDone
	for number := range w.refusedAhead {
		if number <= last {
			known++
		}
	}
	w.refusedUnsaid = max(0, int(opened.Refused)-known)
	w.settle()
}

// send gives the service each event as it comes.
func (w *Writer) send(call ambient.SessionService_PushSessionEventsClient, number uint64) {
	for {
		batch, flush, changed := w.next(number)
		frame := &ambient.PushSessionEventsRequest{}
		switch {
		case len(batch) > 0:
			frame.Frame = &ambient.PushSessionEventsRequest_Batch{
				Batch: &ambient.Batch{FirstClientSeq: number, Events: batch},
			}
			number += uint64(len(batch))
		case flush:
			frame.Frame = &ambient.PushSessionEventsRequest_Flush{Flush: &ambient.Flush{}}
		case w.isDone():
			_ = call.CloseSend()
			return
		default:
			select {
			case <-changed:
				continue
			case <-call.Context().Done():
				return
			}
		}
		if call.Send(frame) != nil {
			return
		}
	}
}

// next has the events from a number on that may be sent now; without any, whether to flush.
func (w *Writer) next(number uint64) (batch []*ambient.RawEvent, flush bool, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, bytes := max(number, w.first)-w.first, 0
	for ; at < uint64(len(w.events)); at++ {
		event := w.events[at]
		bytes += len(event.payload)
		isFull := len(batch) == batchEventsMax || len(batch) > 0 && bytes > batchBytesMax
		if isFull || event.after > w.messagesDone {
			break
		}
		batch = append(batch, &ambient.RawEvent{Payload: event.payload, OccurredAt: timestamppb.New(event.at)})
	}
	if len(batch) == 0 && at >= uint64(len(w.events)) {
		flush, w.flush = w.flush, false
	}
	return batch, flush, w.changed
}

// isDone: the writer is to be closed, and all is settled.
func (w *Writer) isDone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closing && len(w.events) == 0 && len(w.messages) == 0
}
