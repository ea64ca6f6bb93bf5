package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/bench/served"
)

// server is `plan serve` or `plan agent` under attack, watched through the kernel and its metrics.
type server struct{ *served.Server }

// serve serves a plan with the replay engine on free ports of loopback.
func (a *attack) serve(ctx context.Context, plan string, flags ...string) (*server, error) {
	s, err := a.Serve(ctx, append([]string{plan, "--engine", "replay", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}, flags...)...)
	return &server{s}, err
}

// whileServing serves a plan while something is done. The server has to end well.
func (a *attack) whileServing(ctx context.Context, plan string, do func(*server) error, flags ...string) error {
	s, err := a.serve(ctx, plan, flags...)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.end())
}

// end stops the server, which must not have panicked.
func (s *server) end() error {
	err := s.Stop()
	if n := s.panics(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d panics\n%s", n, s.Tail()))
	}
	return err
}

// panics counts the panics in the server's log.
func (s *server) panics() (n int) {
	for _, line := range s.Lines() {
		if strings.Contains(line, "panic") || strings.HasPrefix(line, "fatal error:") {
			n++
		}
	}
	return n
}

func (s *server) pid() int { return s.Command.Process.Pid }

// cpu returns the CPU time of the server's process alone, to the nanosecond: the clock
// that the kernel keeps for each process (man 3 clock_getcpuclockid).
func (s *server) cpu() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^s.pid()<<3|2), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// memory returns a field of /proc/PID/status in MiB, such as VmRSS or VmHWM, its largest value.
func (s *server) memory(field string) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid())) // of a process that has ended, there is none
	_, rest, _ := strings.Cut(string(text), "\n"+field+":")
	kib := 0.0
	_, _ = fmt.Sscan(rest, &kib)
	return kib / 1024
}

// descriptors returns how many descriptors the server has.
func (s *server) descriptors() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid())) // likewise
	return len(list)
}

// workers returns the process ids of the server's children.
func (s *server) workers() (pids []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.pid()))
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// series are metrics by name with labels.
type series map[string]float64

// scrape reads the server's metrics.
func (s *server) scrape() (series, error) {
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Get("http://" + s.Metrics + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	out := series{}
	for line := range bytes.Lines(text) {
		at := bytes.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(string(bytes.TrimSpace(line[at:])), 64); err == nil {
			out[string(line[:at])] = v
		}
	}
	return out, nil
}

// sum adds up the series of a name, over all labels.
func (m series) sum(name string) (total float64) {
	for k, v := range m {
		if strings.HasPrefix(k, name+"{") {
			total += v
		}
	}
	return total
}

// await waits until a metric has a value, and returns the last metrics that it read. After the time, ok is false.
func (s *server) await(ctx context.Context, name string, value float64, within time.Duration) (m series, ok bool, err error) {
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		if m, err = s.scrape(); err == nil && m.sum(name) == value {
			return m, true, nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return m, false, err
		}
	}
}

// settled waits until the server holds no request any more, and returns its metrics then.
func (s *server) settled(ctx context.Context) (series, error) {
	m, ok, err := s.await(ctx, "inferplan_in_flight", 0, 20*time.Second)
	if !ok {
		return nil, fmt.Errorf("requests are still held: %w\n%s", errors.Join(err, ctx.Err()), s.Tail())
	}
	return m, nil
}
