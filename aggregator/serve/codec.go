package serve

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that is wrapped here
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// agentCodec is gRPC's codec, but for messages of agents that cannot be decoded. For those gRPC would end the stream with
// INTERNAL, as if the fault were ours, before the handler hears of it. Here they arrive empty, which the handler refuses
// as agent.proto says.
type agentCodec struct {
	encoding.CodecV2
	crew *crew
}

func newAgentCodec(c *crew) agentCodec { return agentCodec{encoding.GetCodecV2("proto"), c} }

// Marshal encodes a message.
func (c agentCodec) Marshal(message any) (data mem.BufferSlice, err error) {
	if _, agents := message.(*offrampv1.ConnectResponse); !agents {
		return c.CodecV2.Marshal(message)
	}
	c.crew.do(func() { data, err = c.CodecV2.Marshal(message) })
	return data, err
}

// Unmarshal decodes a message.
func (c agentCodec) Unmarshal(data mem.BufferSlice, into any) error {
	message, agents := into.(*offrampv1.ConnectRequest)
	if !agents {
		return c.CodecV2.Unmarshal(data, into)
	}
	var err error
	if c.crew.do(func() { err = c.CodecV2.Unmarshal(data, into) }); err != nil {
		proto.Reset(message)
	}
	return nil
}
