package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/bench/figures"
	"inferplan/formats/seeded"
)

// faults kills workers, fills the disk and takes the descriptors away.
func (a *attack) faults(ctx context.Context) (out []figures.Figure, err error) {
	for _, f := range []func(context.Context) ([]figures.Figure, error){a.kills, a.noDescriptors, a.fullDisk} {
		list, ferr := f(ctx)
		out, err = append(out, list...), errors.Join(err, ferr)
	}
	return out, err
}

// kills ends workers with SIGKILL under load: every request ends in exactly one way,
// and the server counts as the client does.
func (a *attack) kills(ctx context.Context) ([]figures.Figure, error) {
	plan, err := a.smallPlan(ctx, 4, 20*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return nil, err
	}
	s, err := a.startServer(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	rng := seeded.New(a.seed, "kills")
	n, killed := a.count(100), 0
	shots := openLoop(s.http, []string{"m", "words"}, 80, func(time.Time) {
		for range n {
			if pids := s.workers(); len(pids) > 0 && syscall.Kill(pids[rng.IntN(len(pids))], syscall.SIGKILL) == nil {
				killed++
			}
			time.Sleep(time.Duration(50+rng.IntN(300)) * time.Millisecond)
		}
		time.Sleep(time.Second)
	})
	answers, lost := endings(shots)
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	// Who dies again and again is started after pauses of up to five seconds.
	up := 0.0
	for end := time.Now().Add(10 * time.Second); up != 4 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		series, err := s.scrape()
		if err != nil {
			return nil, err
		}
		up = sum(series, "inferplan_worker_up", "")
	}
	series, err := s.scrape()
	if err != nil {
		return nil, err
	}
	counted := sum(series, "inferplan_requests_total", "")
	apart := int(counted) - len(shots)
	if apart < 0 {
		apart = -apart
	}
	a.printf("kills: %d, %d requests, %s; %d lost, the server counts %g; %g of 4 workers up\n", killed, len(shots), listed(answers), lost, counted, up)
	return []figures.Figure{
		{Claim: "workers killed (SIGKILL) under load: requests lost or counted otherwise by the server", Source: source, Asked: "none", Measured: float64(lost + apart), Unit: fmt.Sprintf("of %d", len(shots)), Holds: figures.If(lost+apart == 0 && up == 4),
			Note: fmt.Sprintf("%d killed, %g of 4 workers up in the end; answers: %s", killed, up, listed(answers))},
	}, nil
}

// noDescriptors lets connections take all descriptors of the server, and kills a worker
// while there are none.
func (a *attack) noDescriptors(ctx context.Context) ([]figures.Figure, error) {
	plan, err := a.smallPlan(ctx, 2, 5*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return nil, err
	}
	s, err := a.startServer(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	limit := unix.Rlimit{Cur: uint64(s.descriptors() + 30), Max: uint64(s.descriptors() + 30)}
	if err := unix.Prlimit(s.pid(), unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		return nil, fmt.Errorf("limiting descriptors: %w", err)
	}
	var held []net.Conn
	for i := range 200 {
		c, err := net.DialTimeout("tcp", []string{s.http, s.grpc, s.metrics}[i%3], time.Second)
		if err != nil {
			break
		}
		held = append(held, c)
	}
	time.Sleep(500 * time.Millisecond)
	if pids := s.workers(); len(pids) > 0 {
		_ = syscall.Kill(pids[0], syscall.SIGKILL)
	}
	time.Sleep(500 * time.Millisecond)
	used := s.descriptors()
	for _, c := range held {
		c.Close()
	}
	began := time.Now()
	up := 0.0
	for up != 2 && time.Since(began) < 20*time.Second {
		time.Sleep(50 * time.Millisecond)
		if series, err := s.scrape(); err == nil {
			up = sum(series, "inferplan_worker_up", "")
		}
	}
	took := time.Since(began)
	shots := openLoop(s.http, []string{"m", "words"}, 40, func(time.Time) { time.Sleep(time.Second) })
	answers, lost := endings(shots)
	code, err := s.stop()
	if err != nil || code != 0 {
		return nil, fmt.Errorf("without descriptors the server ended with code %d: %w", code, errors.Join(err, errors.New("expected 0")))
	}
	a.printf("no descriptors: %d of %d used, all up again after %v; then %s, %d lost\n", used, limit.Cur, took, listed(answers), lost)
	good := answers["200"] == len(shots) && up == 2
	return []figures.Figure{{Claim: "no descriptors left and a worker killed: until all serves again once connections close", Source: source, Asked: "it comes back", Measured: round(took.Seconds()), Unit: "s", Holds: figures.If(good && lost == 0),
		Note: fmt.Sprintf("%d descriptors; then %s", limit.Cur, listed(answers))}}, nil
}

// fullDisk writes with every verb to a file system that has no room: exit code 5, the
// file that was there stays, and nothing else is left.
func (a *attack) fullDisk(ctx context.Context) ([]figures.Figure, error) {
	plan, err := a.smallPlan(ctx, 2, 5*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return nil, err
	}
	full := filepath.Join(a.dir, "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("none", full, "tmpfs", 0, "size=64k"); err != nil {
		a.printf("full disk: left out, a file system of 64 KiB cannot be mounted: %v\n", err)
		return nil, nil
	}
	defer func() { _ = unix.Unmount(full, 0) }()
	dir := filepath.Dir(plan)
	records := filepath.Join(a.dir, "records.csv")
	if err := os.WriteFile(records, []byte("sample_id,model,correct,certainty\n0,m,1,0.9\n0,words,1,0.8\n1,m,0,0.3\n1,words,1,0.7\n"), 0o600); err != nil {
		return nil, err
	}
	trace := filepath.Join(a.dir, "trace.csv")
	if err := os.WriteFile(trace, []byte("t_us\n"+strings.Repeat("1\n", 100_000)), 0o600); err != nil {
		return nil, err
	}
	type verb struct {
		name, file string
		args       []string
	}
	verbs := []verb{
		{"solve", "plan.json", []string{"solve", "-o", "OUT"}}, {"simulate", "report.json", []string{"simulate", "plan.json", "--duration", "1s", "-o", "OUT"}},
		{"import records", "profile.json", []string{"import", "records", records, "-o", "OUT"}}, {"import trace", "trace.csv", []string{"import", "trace", trace, "-o", "OUT"}},
		{"models write", "mlp-256.onnx", []string{"models", "write", "mlp-256", "--dir", full}}, {"event log", "events.log", []string{"simulate", "plan.json", "--duration", "20s", "--event-log", "OUT"}},
	}
	var wrong []string
	for _, v := range verbs {
		out := filepath.Join(full, v.file)
		before := []byte(nil)
		if strings.HasSuffix(v.file, ".json") { // of the kind that the verb writes
			if before, err = os.ReadFile(filepath.Join(dir, v.file)); err != nil {
				if e := a.call(ctx, dir, "simulate", "plan.json", "--duration", "1s", "-o", filepath.Join(dir, v.file)); e.code != 0 {
					return nil, fmt.Errorf("%s: %s", v.name, e.said)
				}
				before, _ = os.ReadFile(filepath.Join(dir, v.file))
			}
			if err := os.WriteFile(out, before, 0o600); err != nil {
				return nil, err
			}
		}
		if err := fill(full); err != nil {
			return nil, err
		}
		args := make([]string, len(v.args))
		for i, arg := range v.args {
			args[i] = strings.Replace(arg, "OUT", out, 1)
		}
		e := a.call(ctx, dir, args...)
		after, _ := os.ReadFile(out)
		os.Remove(filepath.Join(full, "ballast"))
		if e.code != 5 || before != nil && string(after) != string(before) {
			wrong = append(wrong, fmt.Sprintf("%s: code %d, the old file stays: %v: %.200s", v.name, e.code, string(after) == string(before), e.said))
		}
		os.Remove(out)
		if left, _ := os.ReadDir(full); len(left) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: leaves %v", v.name, left))
		}
	}
	a.printf("full disk: %d verbs, wrong: %q\n", len(verbs), wrong)
	return []figures.Figure{{Claim: "verbs that do not end with 5, lose the old file or leave another where the disk is full", Source: source, Asked: "none", Measured: float64(len(wrong)), Unit: fmt.Sprintf("of %d", len(verbs)),
		Holds: figures.If(len(wrong) == 0), Note: strings.Join(wrong, "; ")}}, nil
}

// fill takes what room there is left in a folder's file system.
func fill(dir string) error {
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 1024)); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
