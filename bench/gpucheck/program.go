package gpucheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// program is this program, whose other verbs steps run as processes, as a user
// would, with the folders that these work in.
type program struct{ Options }

// lastBytes keeps the end of what is written.
type lastBytes struct{ b []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.b = append(l.b, p...)
	if over := len(l.b) - 1000; over > 0 {
		l.b = append(l.b[:0], l.b[over:]...)
	}
	return len(p), nil
}

func (l *lastBytes) String() string { return strings.Join(strings.Fields(string(l.b)), " ") }

func (c *program) rehearsal() bool { return strings.HasPrefix(c.Device, "cpu") }

// plan runs a verb of this program and returns what it printed.
func (c *program) plan(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Dir = c.Work
	var out bytes.Buffer
	var said lastBytes
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, c.log()), io.MultiWriter(c.log(), &said)
	fmt.Fprintf(c.log(), "$ plan %s\n", strings.Join(args, " "))
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		return out.String(), fmt.Errorf("plan %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return out.String(), nil
}

func (c *program) log() io.Writer {
	if c.Log == nil {
		return os.Stderr
	}
	return c.Log
}

// models writes models with weights into the work folder, those that are not
// there yet, and returns their paths.
func (c *program) models(ctx context.Context, names ...string) ([]string, error) {
	var paths, missing []string
	for _, n := range names {
		p := filepath.Join(c.Work, "models", n+".onnx")
		paths = append(paths, p)
		if _, err := os.Stat(p); err != nil {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		if _, err := c.plan(ctx, append([]string{"models", "write", "--dir", filepath.Join(c.Work, "models")}, missing...)...); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func (c *program) out(name string) string { return filepath.Join(c.Out, name) }

func (c *program) work(name string) string { return filepath.Join(c.Work, name) }

// batches of the profile: eight sizes.
func (c *program) batches() []int {
	if c.Quick {
		return []int{1, 2}
	}
	return []int{1, 2, 4, 8, 16, 32, 48, 64}
}

func (c *program) blocks() int {
	if c.Quick {
		return 4
	}
	return 10
}

func join(list []int) string {
	var out []string
	for _, v := range list {
		out = append(out, strconv.Itoa(v))
	}
	return strings.Join(out, ",")
}

// measure runs plan profile on models into a file of the results.
func (c *program) measure(ctx context.Context, file string, budget time.Duration, names []string, batches []int, more ...string) (time.Duration, error) {
	return c.measureInto(ctx, c.out(file), budget, names, batches, c.blocks(), more...)
}

// measureInto does it with any file and number of blocks.
func (c *program) measureInto(ctx context.Context, path string, budget time.Duration, names []string, batches []int, blocks int, more ...string) (time.Duration, error) {
	paths, err := c.models(ctx, names...)
	if err != nil {
		return 0, err
	}
	args := append([]string{"profile"}, paths...)
	args = append(args, "--device", c.Device, "--batches", join(batches), "--blocks", strconv.Itoa(blocks), "--budget", budget.String(), "-o", path, "-q")
	if c.rehearsal() {
		args[slices.Index(args, "--device")+1] = "cpu"
	}
	begin := time.Now()
	_, err = c.plan(ctx, append(args, more...)...)
	return time.Since(begin), err
}

// besideProfile reads the profile of step profile and one that is to be set
// against it.
func (c *program) besideProfile(file string) (a, b *formats.Profile, err error) {
	if a, err = readProfile(c.out("profile.json")); err == nil {
		b, err = readProfile(c.out(file))
	}
	return a, b, err
}

// measured returns whether a profile of the results holds numbers of a model.
func (c *program) measured(file, name string) bool {
	p, err := readProfile(c.out(file))
	return err == nil && slices.ContainsFunc(p.Models, func(m formats.ProfileModel) bool { return m.Model == name && len(m.Measurements) > 0 })
}

// needsProfile says what to run first where models have not been measured.
func (c *program) needsProfile(names ...string) error {
	p, err := readProfile(c.out("profile.json"))
	if err != nil {
		return fmt.Errorf("run the step profile first: %w", err)
	}
	for _, n := range names {
		if !slices.ContainsFunc(p.Models, func(m formats.ProfileModel) bool { return m.Model == n }) {
			return fmt.Errorf("run the step profile first: %s lacks %s", c.out("profile.json"), n)
		}
	}
	return nil
}

// blank copies a profile's models and cuts without its numbers, so that what is
// measured into the copy is cut at the same places.
func (c *program) blank(from, to string, only []string) error {
	p, err := readProfile(c.out(from))
	if err != nil {
		return fmt.Errorf("the step needs the profile of step profile: %w", err)
	}
	p.Devices, p.Notes, p.Records = []formats.ProfileDevice{}, nil, nil
	p.Models = slices.DeleteFunc(p.Models, func(m formats.ProfileModel) bool { return !slices.Contains(only, m.Model) })
	for i := range p.Models {
		p.Models[i].Measurements = []formats.Measurement{}
	}
	_, err = document.WriteFile(c.out(to), p, document.Force(true))
	return err
}

func readProfile(path string) (*formats.Profile, error) { return formats.ReadProfile(path) }

// exists returns whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// server is a plan being served by a process.
type server struct {
	cmd  *exec.Cmd
	http string
	done chan error
}

// startServer serves a plan and waits until it is ready.
func (c *program) startServer(ctx context.Context, plan, models string, more ...string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	args := append([]string{"serve", plan, "--models", models, "--http", address, "--grpc", "off", "--metrics", "off", "-q"}, more...)
	if c.rehearsal() {
		args = append(args, "--share-cpus")
	}
	fmt.Fprintf(c.log(), "$ plan %s &\n", strings.Join(args, " "))
	s := &server{cmd: exec.Command(c.Self, args...), http: "http://" + address, done: make(chan error, 1)}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = c.Work, c.log(), c.log()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.done <- s.cmd.Wait() }()
	client := http.Client{Timeout: 2 * time.Second}
	for {
		if r, err := client.Get(s.http + "/v2/health/ready"); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		select {
		case err := <-s.done:
			return nil, fmt.Errorf("the server of %s ended before it was ready: %w", filepath.Base(plan), err)
		case <-ctx.Done():
			_ = s.cmd.Process.Kill()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// stop drains the server.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.done:
		return err
	case <-time.After(40 * time.Second):
		_ = s.cmd.Process.Kill()
		return errors.Join(errors.New("the server did not drain"), <-s.done)
	}
}

// workload writes a workload of models with one SLO.
func (c *program) workload(name string, slo string, models ...string) error {
	text := "format: inferplan.workload/v1\nmodels:\n"
	for _, m := range models {
		text += fmt.Sprintf("- {model: %s, slo: %s}\n", m, slo)
	}
	return os.WriteFile(c.work(name), []byte(text), 0o644)
}

// driven is one load of a served plan: what was measured, what simulation makes
// of the times that were recorded meanwhile, and what the plan promised.
type driven struct{ measured, simulated, promised *formats.Report }

// drive serves a plan, sends it a share of its planned rate and simulates the
// same arrivals.
func (c *program) drive(ctx context.Context, plan, models string, load float64, seconds int) (d driven, err error) {
	at := func(what string) string {
		return c.work(fmt.Sprintf("%s-%s.json", strings.TrimSuffix(plan, ".json"), what))
	}
	service, measured, simulated, promised := at("service"), at("measured"), at("simulated"), at("promised")
	s, err := c.startServer(ctx, c.work(plan), models, "--record", service, "-o", at("served"))
	if err != nil {
		return d, err
	}
	common := []string{"--load", fmt.Sprint(load), "--duration", fmt.Sprintf("%ds", seconds), "--warmup", "2s", "--seed", "1", "-q"}
	_, err = c.plan(ctx, append([]string{"load", s.http, "--plan", c.work(plan), "-o", measured}, common...)...)
	if err = errors.Join(err, s.stop()); err != nil {
		return d, err
	}
	if _, err = c.plan(ctx, append([]string{"simulate", c.work(plan), "--service", service, "-o", simulated}, common...)...); err != nil {
		return d, err
	}
	if _, err = c.plan(ctx, append([]string{"simulate", c.work(plan), "-o", promised}, common...)...); err != nil {
		return d, err
	}
	for path, to := range map[string]**formats.Report{measured: &d.measured, simulated: &d.simulated, promised: &d.promised} {
		if *to, err = formats.ReadReport(path); err != nil {
			return d, err
		}
	}
	return d, nil
}
