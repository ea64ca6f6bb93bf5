package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// server is `plan serve` as a process of its own, and what it has said.
type server struct {
	cmd                 *exec.Cmd
	http, grpc, metrics string // addresses
	ended               chan struct{}

	mu   sync.Mutex
	log  []string
	news chan struct{} // closed and made anew with every line
}

// serving is the line with the addresses.
var serving = regexp.MustCompile(`serving .*: HTTP (\S+), gRPC (\S+), metrics ([^;]+);`)

// startServer serves a plan with the replay engine on free ports of loopback.
func (t *target) startServer(ctx context.Context, plan string, more ...string) (*server, error) {
	args := append([]string{"serve", plan, "--engine", "replay", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}, more...)
	s := &server{cmd: exec.CommandContext(ctx, t.plan, args...), ended: make(chan struct{}), news: make(chan struct{})}
	s.cmd.Dir = t.dir
	s.cmd.Stdout = io.Discard
	said, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	go s.listen(said)
	line, err := s.said(ctx, 0, 30*time.Second, func(line string) bool { return serving.MatchString(line) })
	if err != nil {
		s.kill()
		return nil, fmt.Errorf("the server does not start: %w\n%s", err, strings.Join(s.lines(), "\n"))
	}
	m := serving.FindStringSubmatch(line)
	s.http, s.grpc, s.metrics = m[1], m[2], m[3]
	return s, nil
}

func (s *server) listen(said io.Reader) {
	sc := bufio.NewScanner(said)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		s.mu.Lock()
		s.log = append(s.log, sc.Text())
		close(s.news)
		s.news = make(chan struct{})
		s.mu.Unlock()
	}
	_ = s.cmd.Wait() // the exit code is read from ProcessState
	close(s.ended)
}

// lines returns the lines that the server has written so far.
func (s *server) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log[:len(s.log):len(s.log)]
}

// said waits for a line from a place of the log on.
func (s *server) said(ctx context.Context, from int, wait time.Duration, is func(line string) bool) (string, error) {
	limit := time.After(wait)
	for {
		s.mu.Lock()
		list, news := s.log[min(from, len(s.log)):], s.news
		s.mu.Unlock()
		for _, line := range list {
			if is(line) {
				return line, nil
			}
		}
		from += len(list)
		select {
		case <-news:
		case <-s.ended:
			if len(s.lines()) == from {
				return "", errors.New("the server has ended")
			}
		case <-limit:
			return "", fmt.Errorf("nothing said within %v", wait)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// panics counts the panics in the server's lines.
func (s *server) panics() (n int) {
	for _, line := range s.lines() {
		if strings.Contains(line, "panic") || strings.HasPrefix(line, "fatal error:") {
			n++
		}
	}
	return n
}

// lastWords returns the last 12 lines of the log; if the server panicked, it returns 60 lines from
// there on.
func (s *server) lastWords() []string {
	const most, ofPanic = 12, 60
	lines := s.lines()
	for i, line := range lines {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "SIG") || strings.HasPrefix(line, "runtime:") {
			return lines[i:min(i+ofPanic, len(lines))]
		}
	}
	return lines[max(0, len(lines)-most):]
}

// stop drains the server and returns its exit code.
func (s *server) stop() (int, error) {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
		return s.cmd.ProcessState.ExitCode(), nil
	case <-time.After(45 * time.Second):
		s.kill()
		return -1, errors.New("the server does not end")
	}
}

// served has a plan served while something is done, and the server end well.
func (t *target) served(ctx context.Context, plan string, do func(*server) error, more ...string) error {
	s, err := t.startServer(ctx, plan, more...)
	if err != nil {
		return err
	}
	err = do(s)
	code, serr := s.stop()
	if err == nil && code != 0 {
		err = fmt.Errorf("the server ended with code %d", code)
	}
	return errors.Join(err, serr)
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

func (s *server) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// cpu is the CPU time of the server's process alone, to the nanosecond: the clock
// that the kernel keeps for each process (man 3 clock_getcpuclockid).
func (s *server) cpu() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^s.pid()<<3|2), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// status is a field of /proc/PID/status in bytes, such as VmRSS or VmHWM.
func (s *server) status(field string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid()))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\n"+field+":")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(words[0], 10, 64)
	return n << 10
}

func (s *server) descriptors() int {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid()))
	if err != nil {
		return 0
	}
	return len(list)
}

// workers are the process ids of the server's children.
func (s *server) workers() (pids []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.pid()))
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// scrape reads the metrics: name with labels, and value.
func (s *server) scrape() (map[string]float64, error) {
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Get("http://" + s.metrics + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
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

// sum adds up the series whose name and labels begin so and hold a label.
func sum(series map[string]float64, name, label string) (total float64) {
	for k, v := range series {
		if strings.HasPrefix(k, name+"{") && strings.Contains(k, label) {
			total += v
		}
	}
	return total
}
