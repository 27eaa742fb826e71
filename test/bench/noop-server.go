// The no-op server of test/support/noop-server.ts on grpc-go: how far ours is from another implementation
// of gRPC. Built in clients/go, for its module and its generated code. Prints {"address":"127.0.0.1:40123"}.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	ambient "github.com/session-ledger/session-ledger/clients/go/ambient/v1"
)

type server struct {
	ambient.UnimplementedSessionServiceServer
	seq atomic.Int64
}

func (s *server) PushSessionEvent(_ context.Context, request *ambient.PushSessionEventRequest) (*ambient.SessionEvent, error) {
	return &ambient.SessionEvent{
		Id:         "01900000-0000-7000-8000-000000000000",
		SessionId:  request.SessionId,
		Seq:        s.seq.Add(1),
		EventType:  request.EventType,
		Payload:    request.Payload,
		CreatedAt:  timestamppb.Now(),
		EventCount: max(1, request.EventCount),
	}, nil
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	grpcServer := grpc.NewServer(grpc.MaxConcurrentStreams(1_000))
	ambient.RegisterSessionServiceServer(grpcServer, &server{})
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-stop
		grpcServer.Stop()
	}()
	fmt.Printf("{\"address\":%q}\n", listener.Addr().String())
	if err := grpcServer.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
