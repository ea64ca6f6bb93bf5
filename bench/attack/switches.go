package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/formats"
	"inferplan/formats/seeded"
)

// candidate is what may come to lie in the file of the plan.
type candidate struct {
	text  []byte
	good  bool
	words bool // serves the model words
}

// switched is what switches did.
type switched struct {
	switches, refused, disagree int
	wrong                       []string
	answers                     map[string]int
	lost                        int
}

// switchesPerServer is how many a server with one --drain goes through.
const switchesPerServer = 20

// switches puts random plans, good and bad, in force under load, with random times to
// drain, and looks after each whether all that tells of the plan in force agrees.
func (a *attack) switches(ctx context.Context) ([]figures.Figure, error) {
	list, err := a.candidates(ctx)
	if err != nil {
		return nil, err
	}
	total := &switched{answers: map[string]int{}}
	rng := seeded.New(a.seed, "switches")
	for left := a.count(200); left > 0; left -= switchesPerServer {
		drain := time.Duration(math.Exp(rng.Float64()*math.Log(5000))*1000) * time.Microsecond // 1 ms to 5 s
		picks := make([]int, min(left, switchesPerServer))
		for i := range picks {
			picks[i] = rng.IntN(len(list))
		}
		if err := a.switchThrough(ctx, list, picks, drain, total); err != nil {
			return nil, fmt.Errorf("--drain %v: %w", drain, err)
		}
	}
	a.printf("switches: %d, %d of bad plans; %d disagree; %s; %d lost\n", total.switches, total.refused, total.disagree, listed(total.answers), total.lost)
	for _, w := range total.wrong {
		a.printf("    FAILED %s\n", w)
	}
	command := "make attack ATTACK='-parts switches'"
	requests := 0
	for _, n := range total.answers {
		requests += n
	}
	return []figures.Figure{
		{Claim: "random switches of plans with random --drain under load after which file, log, plan_info and models disagree", Source: source, Asked: "none", Measured: float64(total.disagree), Unit: fmt.Sprintf("of %d", total.switches),
			Holds: figures.If(total.disagree == 0), Note: fmt.Sprintf("%d of plans that are none and have to be refused", total.refused), Command: command},
		{Claim: "requests lost, or answered with another's answer, during these switches", Source: source, Asked: "none", Measured: float64(total.lost), Unit: fmt.Sprintf("of %d", requests), Holds: figures.If(total.lost == 0), Note: listed(total.answers), Command: command},
	}, nil
}

func (a *attack) candidates(ctx context.Context) (out []candidate, err error) {
	for i, models := range []map[string]time.Duration{
		{"m": 20 * time.Millisecond}, {"m": 20 * time.Millisecond, "words": 20 * time.Millisecond}, {"m": 40 * time.Millisecond}, {"m": 60 * time.Millisecond, "words": 10 * time.Millisecond},
	} {
		path, err := a.solvePlan(ctx, fmt.Sprintf("candidate-%d", i), models, 2, 800*time.Millisecond)
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
func (a *attack) switchThrough(ctx context.Context, list []candidate, picks []int, drain time.Duration, total *switched) error {
	path := filepath.Join(a.dir, "switched.json")
	now := list[0]
	if err := os.WriteFile(path, now.text, 0o600); err != nil {
		return err
	}
	sum, err := formats.Digest(path)
	if err != nil {
		return err
	}
	s, err := a.startServer(ctx, path, "--drain", drain.String())
	if err != nil {
		return err
	}
	defer s.kill()
	var failure error
	shots := openLoop(s.http, []string{"m"}, 40, func(time.Time) {
		for _, pick := range picks {
			next := list[pick]
			if failure = os.WriteFile(path, next.text, 0o600); failure != nil {
				return
			}
			if next.good {
				now = next
				if sum, failure = formats.Digest(path); failure != nil {
					return
				}
			} else {
				total.refused++
			}
			total.switches++
			if wrong := s.switchTo(ctx, sum, next.good, now.words); wrong != nil {
				if total.disagree++; len(total.wrong) < 10 {
					total.wrong = append(total.wrong, fmt.Sprintf("--drain %v: %v", drain, wrong))
				}
			}
		}
	})
	answers, lost := endings(shots)
	for answer, n := range answers {
		total.answers[answer] += n
	}
	total.lost += lost
	if err := errors.Join(failure, s.settled(ctx)); err != nil {
		return err
	}
	if code, err := s.stop(); err != nil || code != 0 || s.panics() > 0 {
		return fmt.Errorf("the server ended with code %d, %d panics: %w", code, s.panics(), errors.Join(err, errors.New("expected 0, none")))
	}
	return nil
}

// switchTo lets the server read its plan again and says what disagrees then.
func (s *server) switchTo(ctx context.Context, sum string, good, words bool) error {
	from := len(s.lines())
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	line, err := s.said(ctx, from, 30*time.Second, func(line string) bool {
		return strings.Contains(line, "switched to the new plan") || strings.Contains(line, "the plan's file has not changed") || strings.Contains(line, "the plan in force stays")
	})
	if err != nil {
		return err
	}
	var errs []error
	if stays := strings.Contains(line, "the plan in force stays"); stays == good {
		errs = append(errs, fmt.Errorf("log: %s; a good plan: %v", line, good))
	}
	if told := field(line, "sha256"); told != "" && told != sum {
		errs = append(errs, fmt.Errorf("log: %s, file: %s", told, sum))
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
	if len(plans) != 1 || !strings.Contains(plans[0], sum) {
		errs = append(errs, fmt.Errorf("metrics: %v, file: %s", plans, sum))
	}
	resp, err := http.Get("http://" + s.http + "/v2/models/words")
	if err != nil {
		return err
	}
	resp.Body.Close()
	if (resp.StatusCode == http.StatusOK) != words {
		errs = append(errs, fmt.Errorf("models: words answers %d, in the plan: %v", resp.StatusCode, words))
	}
	return errors.Join(errs...)
}
