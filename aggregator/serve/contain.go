package serve

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// contain turns a panic of one call into that call's INTERNAL.
func contain(log *slog.Logger, method string, err *error) {
	fault := recover()
	if fault == nil {
		return
	}
	log.Error("a call failed inside", "method", method, "fault", fmt.Sprint(fault), "stack", string(debug.Stack()))
	*err = status.Error(codes.Internal, "the aggregator failed inside; see its log")
}

func containUnary(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
		defer contain(log, info.FullMethod, &err)
		return handler(ctx, request)
	}
}

func containStream(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer contain(log, info.FullMethod, &err)
		return handler(server, stream)
	}
}
