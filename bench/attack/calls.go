package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"inferplan/executor/oip/oippb"
)

// call is a gRPC call in its parts.
type call struct {
	headers [][2]string
	flag    byte
	length  int // of the message according to the prefix; -1 stands for the true length
	message []byte
}

func newCall(method string, msg proto.Message) call {
	b, err := proto.Marshal(msg)
	if err != nil {
		panic(err) // our own good messages
	}
	return call{length: -1, message: b, headers: [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "127.0.0.1"}, {"content-type", "application/grpc"}, {"te", "trailers"}}}
}

// callSeeds are good calls of every method.
func callSeeds() []call {
	infer := func(contents *oippb.InferTensorContents, raw ...[]byte) call {
		return newCall(oippb.GRPCInferenceService_ModelInfer_FullMethodName, &oippb.ModelInferRequest{
			ModelName: "m", Id: "a", Parameters: map[string]*oippb.InferParameter{"timeout": {ParameterChoice: &oippb.InferParameter_Int64Param{Int64Param: 500_000}}},
			Inputs:           []*oippb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1, 4}, Contents: contents}},
			Outputs:          []*oippb.ModelInferRequest_InferRequestedOutputTensor{{Name: "y"}},
			RawInputContents: raw,
		})
	}
	return []call{
		infer(nil, make([]byte, 16)),
		infer(&oippb.InferTensorContents{Fp32Contents: []float32{1, 2, 3, 4}}),
		infer(&oippb.InferTensorContents{Int64Contents: []int64{1, 2, 3, -4}, BytesContents: [][]byte{{1}, {}}}),
		newCall(oippb.GRPCInferenceService_ModelMetadata_FullMethodName, &oippb.ModelMetadataRequest{Name: "m", Version: "1"}),
		newCall(oippb.GRPCInferenceService_ModelReady_FullMethodName, &oippb.ModelReadyRequest{Name: "m"}),
		newCall(oippb.GRPCInferenceService_ModelStatistics_FullMethodName, &oippb.ModelStatisticsRequest{Name: "m"}),
		newCall(oippb.GRPCInferenceService_RepositoryIndex_FullMethodName, &oippb.RepositoryIndexRequest{Ready: true}),
		newCall(oippb.GRPCInferenceService_ServerMetadata_FullMethodName, &oippb.ServerMetadataRequest{}),
		newCall(healthpb.Health_Check_FullMethodName, &healthpb.HealthCheckRequest{}),
	}
}

const callStream, frameSize = 1, 16 << 10

// bytes returns the frames of the call on a connection of its own.
func (c *call) bytes() []byte {
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, nil)
	_ = f.WriteSettings()
	c.writeHeaders(f, callStream)
	message := append(c.prefix(), c.message...)
	for len(message) > 0 {
		n := min(len(message), frameSize)
		_ = f.WriteData(callStream, n == len(message), message[:n])
		message = message[n:]
	}
	return out.Bytes()
}

// writeHeaders opens a stream with the call's headers.
func (c *call) writeHeaders(f *http2.Framer, stream uint32) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range c.headers {
		_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	fragment := block.Next(frameSize)
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: fragment, EndHeaders: block.Len() == 0})
	for block.Len() > 0 {
		fragment = block.Next(frameSize)
		_ = f.WriteContinuation(stream, block.Len() == 0, fragment)
	}
}

// prefix returns what stands before the message.
func (c *call) prefix() []byte {
	length := c.length
	if length < 0 {
		length = len(c.message)
	}
	return binary.BigEndian.AppendUint32([]byte{c.flag}, uint32(length))
}

func grpcWire() wire {
	seeds := callSeeds()
	w := wire{name: "gRPC", good: seeds[0].bytes(), send: sendCall}
	for _, size := range hardSizes {
		for _, c := range hostileMessages(size) {
			w.hard = append(w.hard, c.bytes())
		}
	}
	w.make = func(m *mutator) []byte {
		c := seeds[m.IntN(len(seeds))]
		if m.IntN(2) == 0 {
			c = seeds[m.IntN(3)] // inference has the decoder of its own
		}
		c.headers = slices.Clone(c.headers)
		kind := m.IntN(20)
		switch {
		case kind == 0:
			c.flag, c.length = byte(m.IntN(4)), []int{0, 1, len(c.message) - 1, len(c.message) + 1, 60 << 20, 1 << 30}[m.IntN(6)]
		case kind < 4:
			at := m.IntN(len(c.headers))
			if m.IntN(2) == 0 {
				c.headers = append(c.headers, callHeader(m))
				at = len(c.headers) - 1
			}
			if m.IntN(2) == 0 {
				c.headers[at][1] = string(m.mutate([]byte(c.headers[at][1]), 80<<10))
			}
		default:
			c.message = m.mutate(c.message, largestCall)
		}
		raw := c.bytes()
		if kind == 4 || kind == 5 {
			n := len(http2.ClientPreface) * min(m.IntN(8), 1)
			raw = append(slices.Clone(raw[:n]), m.mutate(raw[n:], largestCall)...)
		}
		return raw
	}
	return w
}

// callHeader is metadata that servers have got wrong before.
func callHeader(m *mutator) [2]string {
	list := [][2]string{
		{"grpc-timeout", "1n"}, {"grpc-timeout", "99999999H"}, {"grpc-timeout", "-1S"}, {"grpc-timeout", "1x"}, {"grpc-encoding", "gzip"}, {"grpc-encoding", "none"}, {"inferplan-class", "gold"},
		{"authorization", "Bearer x"}, {"authorization", "Bearer y"}, {"content-length", "3"}, {":path", "/x"}, {"connection", "close"}, {"x-bin", "!!"}, {"x-bin", "AAAA"}, {"user-agent", "x"},
	}
	return list[m.IntN(len(list))]
}

// sendCall sends raw bytes and reads frames until the call has ended.
func sendCall(address string, raw []byte) (string, bool) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "no connection", true
	}
	defer c.Close()
	go func() { _, _ = c.Write(raw) }() // ends with the connection
	_ = c.SetReadDeadline(time.Now().Add(2 * slowest))
	f := http2.NewFramer(io.Discard, bufio.NewReader(c))
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	quiet := time.AfterFunc(patience, func() { _ = c.(*net.TCPConn).CloseWrite() })
	defer quiet.Stop()
	for {
		frame, err := f.ReadFrame()
		var ne net.Error
		switch {
		case errors.As(err, &ne) && ne.Timeout():
			return "nothing", true
		case err != nil:
			return "closed", false
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			return "reset " + frame.ErrCode.String(), false
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				return "goaway " + frame.ErrCode.String(), false
			}
		case *http2.MetaHeadersFrame:
			if frame.StreamEnded() {
				return callAnswer(frame)
			}
		}
	}
}

// byLibrary is the answer to calls whose frames or headers are no gRPC.
const byLibrary = "Internal, from the library"

// callAnswer is the status of a call.
func callAnswer(h *http2.MetaHeadersFrame) (string, bool) {
	status, message, ours := "", "", false
	for _, f := range h.RegularFields() {
		switch f.Name {
		case "grpc-status":
			status = f.Value
		case "grpc-message":
			message = f.Value
		case "grpc-status-details-bin":
			ours = true
		}
	}
	n, err := strconv.Atoi(status)
	if err != nil {
		return "HTTP " + h.PseudoValue("status"), h.PseudoValue("status") >= "500"
	}
	code := codes.Code(n)
	if code == codes.Internal && !ours {
		// Broken frames and headers, which the library refuses before any of our code
		// runs; all refusals of ours carry details.
		return byLibrary, false
	}
	if code == codes.Internal || code == codes.Unknown || code == codes.DataLoss || code == codes.Unavailable {
		return code.String() + " " + message[:min(len(message), 60)], true
	}
	return code.String(), false
}
