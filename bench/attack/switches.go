package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/instrument"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
)

// candidate is a content that the file of the plan may get.
type candidate struct {
	text  []byte
	good  bool
	words bool // serves the model words
}

// switched holds the effects of switches.
type switched struct {
	switches, refused, disagree int
	wrong                       []string
	answers                     tally
	lost                        int
	killed, again               int // workers killed while they load, and switches tried again
	miscounted                  int // requests that counters and report have too many or too few
}

// pick is a candidate, and whether a worker is killed while it loads.
type pick struct {
	candidate int
	kill      bool
}

// switchesPerServer says how many a server with one --drain goes through.
const switchesPerServer = 20

// switches puts random plans, good and bad, in force under load, with random times to
// drain, and looks after each whether all reports of the plan in force agree.
func (a *attack) switches(r *instrument.Run) error {
	list, err := a.candidates(r.Ctx)
	if err != nil {
		return err
	}
	total := &switched{answers: tally{}}
	rng := seeded.New(a.seed, "switches")
	for left := a.count(200); left > 0; left -= switchesPerServer {
		drain := time.Duration(math.Exp(rng.Float64()*math.Log(5000))*1000) * time.Microsecond // 1 ms to 5 s
		picks := make([]pick, min(left, switchesPerServer))
		for i := range picks {
			picks[i] = pick{rng.IntN(len(list)), rng.IntN(3) == 0}
		}
		if err := a.switchThrough(r.Ctx, list, picks, drain, total); err != nil {
			return fmt.Errorf("--drain %v: %w", drain, err)
		}
	}
	for _, fault := range total.wrong {
		fmt.Fprintf(r.Log, "    FAILED %s\n", fault)
	}
	requests := 0
	for _, n := range total.answers {
		requests += n
	}
	none(r, "random switches of plans with random --drain under load after which file, log, plan_info and models disagree", total.disagree, total.switches,
		"%d of plans that are none and have to be refused; %d workers killed while they load, after which %d switches were tried again", total.refused, total.killed, total.again)
	none(r, "requests lost, or answered with another's answer, during these switches", total.lost, requests, "%v", total.answers)
	none(r, "requests that counters and report have too many or too few after these switches, and counters that went back", total.miscounted, requests, "")
	return nil
}

func (a *attack) candidates(ctx context.Context) (out []candidate, err error) {
	for i, models := range []map[string]time.Duration{
		{"m": 20 * time.Millisecond}, {"m": 20 * time.Millisecond, "words": 20 * time.Millisecond}, {"m": 40 * time.Millisecond}, {"m": 60 * time.Millisecond, "words": 10 * time.Millisecond},
	} {
		path, err := a.solveModels(ctx, fmt.Sprintf("candidate-%d", i), models, 2, 800*time.Millisecond)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, candidate{text, true, models["words"] > 0})
	}
	broken := out[0].text[:len(out[0].text)/2]
	odd := []byte(strings.Replace(string(out[1].text), `"name": "reserve"`, `"name": "reserve", "params": {"guard_share": 1e308}`, 1))
	return append(out, candidate{text: broken}, candidate{text: odd}), nil
}

// switchThrough starts a server and switches it from one candidate to the next.
func (a *attack) switchThrough(ctx context.Context, list []candidate, picks []pick, drain time.Duration, total *switched) error {
	path, written := filepath.Join(a.Folder, "switched.json"), filepath.Join(a.Folder, "switched-report.json")
	now := list[0]
	os.Remove(written)
	if err := os.WriteFile(path, now.text, 0o600); err != nil {
		return err
	}
	hash, err := document.Digest(path)
	if err != nil {
		return err
	}
	s, err := a.serve(ctx, path, "--drain", drain.String(), "-o", written)
	if err != nil {
		return err
	}
	defer s.Kill()
	var failure error
	counted, plans := 0.0, 1
	endings := openLoop(ctx, s.HTTP, []string{"m"}, 40, func() {
		for _, p := range picks {
			next, before := list[p.candidate], hash
			if failure = os.WriteFile(path, next.text, 0o600); failure != nil {
				return
			}
			if next.good {
				now = next
				if hash, failure = document.Digest(path); failure != nil {
					return
				}
			} else {
				total.refused++
			}
			if total.switches++; hash != before {
				plans++
			}
			if wrong := s.switchTo(ctx, hash, next.good, now.words, p.kill, total); wrong != nil {
				if total.disagree++; len(total.wrong) < 10 {
					total.wrong = append(total.wrong, fmt.Sprintf("--drain %v: %v", drain, wrong))
				}
			}
			if series, err := s.scrape(); err == nil {
				n := series.sum(requestsTotal)
				if n < counted {
					total.miscounted++
				}
				counted = n
			}
		}
	})
	lost := total.answers.add(endings)
	total.lost += lost
	series, err := s.settled(ctx)
	if err := errors.Join(failure, err); err != nil {
		return err
	}
	if err := s.end(); err != nil {
		return err
	}
	r, err := formats.ReadReport(written)
	if err != nil {
		return err
	}
	sent, parts := len(endings)-lost, int64(0)
	for i := range r.Plans {
		parts += r.Plans[i].Requests
	}
	if off := max(apart(sent, int(series.sum(requestsTotal))), apart(sent, int(r.Requests))); off > 0 || plans > 1 && (len(r.Plans) != plans || parts != r.Requests) {
		total.miscounted += max(1, off)
		total.wrong = append(total.wrong, fmt.Sprintf("--drain %v: %d requests, the counters have %g, the report %d, its %d parts %d, of %d plans", drain, sent, series.sum(requestsTotal), r.Requests, len(r.Plans), parts, plans))
	}
	return nil
}

// requestsTotal is the counter of requests.
const requestsTotal = "inferplan_requests_total"

// switchTo lets the server read its plan again and says what disagrees then. With kill a
// worker of the new plan is killed as soon as there is one.
func (s *server) switchTo(ctx context.Context, hash string, good, words, kill bool, total *switched) error {
	from, before := len(s.Lines()), s.workers()
	if err := s.Command.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	for end := time.Now().Add(time.Second); kill && good && time.Now().Before(end); time.Sleep(time.Millisecond) {
		fresh := slices.DeleteFunc(s.workers(), func(pid int) bool { return slices.Contains(before, pid) })
		if len(fresh) > 0 {
			if syscall.Kill(fresh[len(fresh)-1], syscall.SIGKILL) == nil {
				total.killed++
			}
			break
		}
	}
	const again = "the switch is tried again"
	line, err := s.Await(ctx, from, 30*time.Second, func(line string) bool {
		return strings.Contains(line, "switched to the new plan") || strings.Contains(line, "the plan's file has not changed") || strings.Contains(line, "the plan in force stays") && !strings.Contains(line, again)
	})
	if err != nil {
		return err
	}
	for _, line := range s.Lines()[from:] {
		if strings.Contains(line, again) {
			total.again++
		}
	}
	var errs []error
	if stays := strings.Contains(line, "the plan in force stays"); stays == good {
		errs = append(errs, fmt.Errorf("log: %s; a good plan: %v", line, good))
	}
	if told := field(line, "sha256"); told != "" && told != hash {
		errs = append(errs, fmt.Errorf("log: %s, file: %s", told, hash))
	}
	series, err := s.scrape()
	if err != nil {
		return err
	}
	var plans []string
	for name := range series {
		if strings.HasPrefix(name, "inferplan_plan_info{") {
			plans = append(plans, name)
		}
	}
	if len(plans) != 1 || !strings.Contains(plans[0], hash) {
		errs = append(errs, fmt.Errorf("metrics: %v, file: %s", plans, hash))
	}
	if differs := series["inferplan_plan_file_differs"] == 1; differs == good {
		errs = append(errs, fmt.Errorf("metrics: the file differs from the plan in force: %v; a good plan: %v", differs, good))
	}
	resp, err := http.Get("http://" + s.HTTP + "/v2/models/words")
	if err != nil {
		return err
	}
	resp.Body.Close()
	if (resp.StatusCode == http.StatusOK) != words {
		errs = append(errs, fmt.Errorf("models: words answers %d, in the plan: %v", resp.StatusCode, words))
	}
	return errors.Join(errs...)
}
