package ledger_test

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
	"github.com/session-ledger/session-ledger/clients/go/ledger"
)

// restored is a service that acknowledges five events, and forgets two of them in a failover.
type restored struct {
	ambient.UnimplementedSessionServiceServer
	mu      sync.Mutex
	streams int
	numbers []uint64
}

func (r *restored) PushSessionEvents(stream ambient.SessionService_PushSessionEventsServer) error {
	r.mu.Lock()
	r.streams++
	isFirst := r.streams == 1
	r.mu.Unlock()
	if _, err := stream.Recv(); err != nil {
		return err
	}
	opened := &ambient.Opened{LastClientSeq: 3}
	if isFirst {
		opened.LastClientSeq = 0
	}
	if err := stream.Send(&ambient.PushSessionEventsResponse{
		Frame: &ambient.PushSessionEventsResponse_Opened{Opened: opened},
	}); err != nil {
		return err
	}
	for {
		request, err := stream.Recv()
		if err != nil {
			return nil
		}
		batch := request.GetBatch()
		if batch == nil {
			continue
		}
		last := batch.FirstClientSeq + uint64(len(batch.Events)) - 1
		r.mu.Lock()
		for number := batch.FirstClientSeq; number <= last; number++ {
			r.numbers = append(r.numbers, number)
		}
		r.mu.Unlock()
		if err := stream.Send(&ambient.PushSessionEventsResponse{
			Frame: &ambient.PushSessionEventsResponse_Committed{Committed: &ambient.Committed{LastClientSeq: last}},
		}); err != nil {
			return err
		}
		if isFirst && last == 5 {
			return status.Error(codes.Unavailable, "failover")
		}
	}
}

func TestWriterContinuesAtTheNumberOfARestoredDatabase(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service, server := &restored{}, grpc.NewServer()
	ambient.RegisterSessionServiceServer(server, service)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	again := make(chan struct{})
	streams := 0
	writer := ledger.NewWriter(clientOf(t, listener.Addr().String()), "s1", ledger.WriterOptions{
		OnAnswer: func(answer *ambient.PushSessionEventsResponse) {
			if answer.GetOpened() != nil {
				if streams++; streams == 2 {
					close(again)
				}
			}
		},
	})
	for range 5 {
		writer.Event("{}")
	}
	select {
	case <-again:
	case <-time.After(30 * time.Second):
		t.Fatal("the writer has not opened a second stream")
	}
	writer.Event("{}")
	complete, stats := writer.Close(t.Context())
	if expected := []uint64{1, 2, 3, 4, 5, 4}; !slices.Equal(service.numbers, expected) {
		t.Errorf("the service got the numbers %v, expected %v", service.numbers, expected)
	}
	if !complete || stats.Events != (ledger.Counts{Committed: 6}) {
		t.Errorf("closed %v with %+v", complete, stats)
	}
}
