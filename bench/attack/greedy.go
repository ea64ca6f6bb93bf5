package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"inferplan/bench/instrument"
	"inferplan/executor/load"
)

// What the greedy part asks for.
const (
	greedyClients = 64
	memoryLimit   = 512 // MiB of the server; requests get half of it
	overBudget    = 128 // MiB
)

// manners are where greedy clients come from: the fairness of a server may depend
// on it.
var manners = []struct{ name, from string }{
	{"an address each", "each"}, {"one address together", "127.0.1.1"}, {"the address of the well-behaved client", "127.0.0.1"},
}

// greedy holds clients that take all the memory they get, and slow ones, against a
// well-behaved one at half load.
func (a *attack) greedy(r *instrument.Run) error {
	path, plan, err := a.smallPlan(r.Ctx, 2, 50*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return err
	}
	rate := promised(plan) / 2
	for _, m := range manners {
		err := a.whileServing(r.Ctx, path, func(s *server) error {
			results, said, err := a.beside(r.Ctx, []string{"greedy", m.from, strconv.Itoa(greedyClients), s.HTTP, s.GRPC}, a.besideLength()*8/10, rate, "http://"+s.HTTP, "grpc://"+s.GRPC)
			if err != nil {
				return err
			}
			share, requests := attained(results)
			fmt.Fprintf(r.Log, "greedy, %s: %s\n", m.name, said)
			atMost(r, "peak memory of the server, 64 greedy clients with "+m.name, memoryLimit/2+overBudget, s.memory("VmHWM"), "MiB", "requests may take 256 MiB")
			state(r, "attainment of a well-behaved client at half load beside them, "+m.name, "at least 99", share, "%", share >= 99, "%d requests of %.0f/s over both protocols", requests, rate)
			return nil
		}, "--memory-limit", fmt.Sprint(memoryLimit, "MiB"))
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// besideLength returns how long hostile clients are there: 30 s, less at a small scale.
func (a *attack) besideLength() time.Duration {
	return time.Duration(float64(30*time.Second) * max(min(a.scale*2, 1), .1))
}

// beside starts a process of hostile clients, and then clients that behave for a time; the hostile ones stay a quarter longer. It returns
// the results of those that behave and what the process said.
func (a *attack) beside(ctx context.Context, hostile []string, length time.Duration, rate float64, urls ...string) (results []*load.Result, said string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	// The clients run beside the server on this machine and nowhere else: at the lowest
	// priority, so that what is measured is the server's memory and not their CPU time.
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "19", self, clientsArgument, (length * 5 / 4).String()}, hostile...)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	time.Sleep(length / 8) // so that they are at it
	results, err = a.behave(ctx, urls, rate, length, nil)
	err = errors.Join(err, cmd.Wait())
	return results, out.String(), err
}

// clientsArgument makes this program the process of hostile clients.
const clientsArgument = "hostile-clients"

// hostileClients is the process of hostile clients, if this process was started as one: time, kind, address to come from (or each, for one
// each), number, and servers that they take in turn.
func hostileClients() {
	if len(os.Args) < 7 || os.Args[1] != clientsArgument {
		return
	}
	length, err := time.ParseDuration(os.Args[2])
	n, aerr := strconv.Atoi(os.Args[5])
	if err := errors.Join(err, aerr); err != nil {
		fmt.Fprintln(os.Stderr, "hostile clients:", err)
		os.Exit(1)
	}
	kind, from, servers := os.Args[3], os.Args[4], os.Args[6:]
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var tries, sent, answered atomic.Int64
	var clients sync.WaitGroup
	for i := range n {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		if from == "each" {
			dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}
		}
		address := servers[i%len(servers)]
		client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}, Timeout: time.Minute}
		clients.Go(func() {
			for ctx.Err() == nil {
				tries.Add(1)
				if kind == "greedy" {
					sent.Add(takeMemory(ctx, dialer, address, i))
					time.Sleep(5 * time.Millisecond)
				} else if answer, _ := ask(client, address, "m", fmt.Sprint("valid-", i)); answer == "200" {
					answered.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if kind == "greedy" {
		fmt.Printf("%d tries sent %.1f GB", tries.Load(), float64(sent.Load())/1e9)
	} else {
		fmt.Printf("%d answered, %d refused", answered.Load(), tries.Load()-answered.Load())
	}
	os.Exit(0)
}

// takeMemory opens a connection and sends what it can of bodies that never end, until
// the server has enough of it. Even clients speak REST, odd ones gRPC. Every eighth client of a protocol sends a byte now and then.
func takeMemory(ctx context.Context, dialer *net.Dialer, address string, client int) (sent int64) {
	c, err := dialer.DialContext(ctx, "tcp", address)
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
	counted := writer(func(p []byte) bool {
		n, err := c.Write(p)
		sent += int64(n)
		return err == nil
	})
	pause := time.Duration(0)
	if client%16 < 2 {
		pause = 50 * time.Millisecond
	}
	if client%2 == 0 {
		endlessBody(counted, pause)
	} else {
		endlessCalls(counted, pause)
	}
	<-gone // holds what it has until it is cut off
	return sent
}

const greedySize = 60 << 20

func endlessBody(write writer, pause time.Duration) {
	if !write([]byte("POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + strconv.Itoa(greedySize) + "\r\n\r\n")) {
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

// endlessCalls fills the first windows of many calls on a connection.
func endlessCalls(write writer, pause time.Duration) {
	w := bufio.NewWriterSize(write, 64<<10)
	if _, err := w.WriteString(http2.ClientPreface); err != nil {
		return
	}
	f := http2.NewFramer(w, nil)
	_ = f.WriteSettings()
	piece := make([]byte, 16<<10)
	if pause > 0 {
		piece = piece[:1]
	}
	c := callSeeds()[0]
	c.length = greedySize
	for id := uint32(1); id < 64; id += 2 {
		c.writeHeaders(f, id)
		if f.WriteData(id, false, c.prefix()) != nil {
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

// writer writes and returns whether that went well.
type writer func([]byte) bool

func (w writer) Write(p []byte) (int, error) {
	if !w(p) {
		return 0, syscall.EPIPE
	}
	return len(p), nil
}
