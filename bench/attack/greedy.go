package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"inferplan/bench/figures"
	"inferplan/executor/load"
	"inferplan/executor/oip/oippb"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

// What the greedy part asks for.
const (
	greedyClients = 64
	memoryLimit   = 512 << 20 // of the server; requests get half of it
	overBudget    = 128 << 20
)

// manners are where greedy clients come from: the fairness of a server may depend
// on it.
var manners = []struct{ name, from string }{
	{"an address each", "each"}, {"one address together", "127.0.1.1"}, {"the address of the well-behaved client", "127.0.0.1"},
}

// greedy holds clients that take all the memory they get, and slow ones, against a
// well-behaved one at half load.
func (a *attack) greedy(ctx context.Context) ([]figures.Figure, error) {
	plan, err := a.smallPlan(ctx, 2, 50*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return nil, err
	}
	rate, err := promised(plan)
	if err != nil {
		return nil, err
	}
	var out []figures.Figure
	for _, m := range manners {
		err := a.served(ctx, plan, func(s *server) error {
			list, err := a.besideGreedy(ctx, s, m.name, m.from, rate/2)
			out = append(out, list...)
			return err
		}, "--memory-limit", "512MiB")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return out, nil
}

func (a *attack) besideGreedy(ctx context.Context, s *server, name, from string, rate float64) ([]figures.Figure, error) {
	length := time.Duration(float64(30*time.Second) * max(min(a.scale*2, 1), .1))
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// The clients run beside the server on this machine and nowhere else: at the lowest
	// priority, so that what is measured is the server's memory and not their CPU time.
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", self, "greedy", s.http, s.grpc, from, length.String())
	cmd.Stderr = os.Stderr
	told, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	time.Sleep(length / 10) // so that they are at it
	var results [2]*load.Result
	var errs [2]error
	var wg sync.WaitGroup
	for i, url := range []string{"http://" + s.http, "grpc://" + s.grpc} {
		wg.Go(func() { results[i], errs[i] = a.behave(ctx, url, rate/2, length*8/10) })
	}
	wg.Wait()
	text, _ := io.ReadAll(told)
	if err := errors.Join(errs[0], errs[1], cmd.Wait()); err != nil {
		return nil, fmt.Errorf("beside greedy clients with %s: %w", name, err)
	}
	peak := s.status("VmHWM")
	requests, good := int64(0), int64(0)
	for i, r := range results {
		requests += r.Requests
		good += r.Completed - r.Late
		a.printf("greedy, %s: %s %d requests, attainment %.4f, %v, lag p99 %v\n", name, []string{"REST", "gRPC"}[i], r.Requests, r.Attainment, r.DroppedByReason, r.GeneratorLag.P99US.D())
	}
	share := float64(good) / float64(max(requests, 1))
	a.printf("greedy, %s: %s; peak memory %d MiB\n", name, text, peak>>20)
	return []figures.Figure{
		{Claim: "peak memory of the server, 64 greedy clients with " + name, Source: source, Asked: fmt.Sprintf("at most %d", (memoryLimit/2+overBudget)>>20), Measured: round(float64(peak) / (1 << 20)), Unit: "MiB",
			Holds: figures.If(peak <= memoryLimit/2+overBudget), Note: "requests may take 256 MiB"},
		{Claim: "attainment of a well-behaved client at half load beside them, " + name, Source: source, Asked: "at least 99", Measured: round(100 * share), Unit: "%", Holds: figures.If(share >= .99),
			Note: fmt.Sprintf("%d requests of %.0f/s over both protocols", requests, rate)},
	}, nil
}

// behave is a client that sends at a rate and keeps to the protocol.
func (a *attack) behave(ctx context.Context, url string, rate float64, length time.Duration) (*load.Result, error) {
	models := []load.Model{{Name: "m", SLO: 800 * time.Millisecond}, {Name: "words", SLO: 800 * time.Millisecond}}
	src := arrivals.Merge(arrivals.Poisson(seeded.New(a.seed, "arrivals "+url[:4]), 0, rate/2, length), arrivals.Poisson(seeded.New(a.seed, "words "+url[:4]), 1, rate/2, length))
	return load.Run(ctx, load.Config{URL: url, Models: models, Duration: length, Seed: a.seed}, src)
}

// beGreedy is the process of the greedy clients: HTTP, gRPC, address and time.
func beGreedy(args []string) error {
	if len(args) != 4 {
		return errors.New("greedy: expected HTTP, GRPC, address, time")
	}
	length, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var mu sync.Mutex
	tries, sent := 0, int64(0)
	var wg sync.WaitGroup
	for i := range greedyClients {
		from := args[2]
		if from == "each" {
			from = fmt.Sprintf("127.0.1.%d", i+1)
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				n := greedyTry(ctx, args[i%2], from, i)
				mu.Lock()
				tries++
				sent += n
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d tries sent %.1f GB", tries, float64(sent)/1e9)
	return nil
}

// greedyTry opens a connection and sends what it can of bodies that never end, until
// the server has enough of it. Every eighth client of a protocol sends a byte now and then.
func greedyTry(ctx context.Context, address, from string, client int) (sent int64) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return 0
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, c)
		c.SetDeadline(time.Unix(1, 0))
	}()
	defer func() { c.Close(); <-gone }()
	write := func(p []byte) bool {
		n, err := c.Write(p)
		sent += int64(n)
		return err == nil
	}
	pause := time.Duration(0)
	if client%16 < 2 {
		pause = 50 * time.Millisecond
	}
	if client%2 == 0 {
		greedyBody(write, pause)
	} else {
		greedyCalls(c, write, pause)
	}
	<-gone // holds what it has until it is cut off
	return sent
}

const greedySize = 60 << 20

func greedyBody(write func([]byte) bool, pause time.Duration) {
	head := "POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + strconv.Itoa(greedySize) + "\r\n\r\n"
	if !write([]byte(head)) {
		return
	}
	piece := make([]byte, 64<<10)
	if pause > 0 {
		piece = piece[:1]
	}
	for n := 0; n+len(piece) < greedySize && write(piece); n += len(piece) {
		time.Sleep(pause)
	}
}

// greedyCalls fills the first windows of many calls on a connection.
func greedyCalls(c net.Conn, write func([]byte) bool, pause time.Duration) {
	w := bufio.NewWriterSize(writer(write), 64<<10)
	f := http2.NewFramer(w, nil)
	if _, err := w.WriteString(http2.ClientPreface); err != nil {
		return
	}
	_ = f.WriteSettings()
	piece := make([]byte, 16<<10)
	if pause > 0 {
		piece = piece[:1]
	}
	for id := uint32(1); id < 64; id += 2 {
		var block buffered
		enc := hpack.NewEncoder(&block)
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", oippb.GRPCInferenceService_ModelInfer_FullMethodName}, {":authority", "127.0.0.1"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
		if f.WriteData(id, false, binary.BigEndian.AppendUint32([]byte{0}, greedySize)) != nil {
			return
		}
		for n := 0; n < 500<<10; n += 16 << 10 {
			if f.WriteData(id, false, piece) != nil || w.Flush() != nil {
				return
			}
			time.Sleep(pause)
		}
	}
}

type buffered []byte

func (b *buffered) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

type writer func([]byte) bool

func (w writer) Write(p []byte) (int, error) {
	if !w(p) {
		return 0, syscall.EPIPE
	}
	return len(p), nil
}
