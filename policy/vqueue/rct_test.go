package vqueue_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
	"inferplan/testkit/queuetest"
)

// card is an instance of Mistral-7B on an A100: one iteration takes a + c per
// decoding sequence + b per token of context + p per prompt token above what
// decoding hides, in ms.
type card struct {
	a, c, b, p float64
	hidden     float64
	slots      int
	budget     float64
}

var mistral = card{a: 13.35, c: 0.087, b: 1.83e-4, p: 0.064, hidden: 128, slots: 121, budget: 2048}

// drain serves a queue that is there at time 0 with chunked prefill.
func (d card) drain(prompts, outputs []float64) []vqueue.CalibrationRequest {
	type active struct {
		i        int
		left, at float64 // prompt tokens to come; context
		out      float64
	}
	run, out := []active{}, make([]vqueue.CalibrationRequest, len(prompts))
	next, now := 0, 0.0
	for next < len(prompts) || len(run) > 0 {
		for next < len(prompts) && len(run) < d.slots {
			run = append(run, active{i: next, left: prompts[next]})
			out[next] = vqueue.CalibrationRequest{Prompt: prompts[next], Output: outputs[next], Start: now / 1000}
			next++
		}
		decoding, context, budget := 0.0, 0.0, d.budget
		for _, x := range run {
			if x.left == 0 {
				decoding, context, budget = decoding+1, context+x.at, budget-1
			}
		}
		chunks := 0.0
		for k := range run {
			x := &run[k]
			if x.left == 0 {
				x.out++
				x.at++
				continue
			}
			chunk := min(x.left, budget)
			budget -= chunk
			chunks += chunk
			x.left -= chunk
			x.at += chunk
			if x.left == 0 {
				x.out = 1
			}
		}
		now += d.a + d.c*decoding + d.b*context
		if chunks > 0 {
			now += d.p * max(0, decoding+chunks-d.hidden)
		}
		run = slices.DeleteFunc(run, func(x active) bool {
			done := x.left == 0 && x.out >= outputs[x.i]
			if done {
				out[x.i].End = now / 1000
			}
			return done
		})
	}
	return out
}

// conversations draws lengths like those of the Azure conversation trace: means
// 1155 and 211.
func conversations(rng *rand.Rand, n int) (prompts, outputs []float64) {
	for range n {
		prompts = append(prompts, math.Ceil(min(math.Exp(6.6+0.95*rng.NormFloat64()), 8000)))
		outputs = append(outputs, math.Ceil(min(math.Exp(5.1+0.7*rng.NormFloat64()), 1000)))
	}
	return prompts, outputs
}

// explainedShare is R2, the share of the variance that a prediction explains.
func explainedShare(got, predicted []float64) float64 {
	mean, res, tot := stat.Mean(got, nil), 0.0, 0.0
	for i := range got {
		res += (got[i] - predicted[i]) * (got[i] - predicted[i])
		tot += (got[i] - mean) * (got[i] - mean)
	}
	return 1 - res/tot
}

// TestWaitingTimes calibrates on one queue and predicts twelve others.
func TestWaitingTimes(t *testing.T) {
	rng := seeded.New(1, "rct")
	prompts, outputs := conversations(rng, 800)
	r, err := vqueue.Calibrate(mistral.drain(prompts, outputs), float64(mistral.slots))
	if err != nil {
		t.Fatal(err)
	}
	perRequest, _ := r.Work(1)
	var means, known, paper []float64
	for range 12 {
		prompts, outputs = conversations(rng, 1000)
		run := mistral.drain(prompts, outputs)
		var waits, byMeans, byLengths, bySlope []float64
		ahead := 0.0
		for i, s := range run {
			waits = append(waits, s.Start)
			byMeans = append(byMeans, r.MeanWait(float64(i)*perRequest))
			byLengths = append(byLengths, r.MeanWait(ahead))
			bySlope = append(bySlope, float64(i)*perRequest) // equation 2 with the corrected throughput
			ahead += r.Alpha*s.Prompt + r.Beta*s.Output
		}
		means, known, paper = append(means, explainedShare(waits, byMeans)), append(known, explainedShare(waits, byLengths)), append(paper, explainedShare(waits, bySlope))
	}
	slices.Sort(means)
	slices.Sort(known)
	slices.Sort(paper)
	t.Logf("waiting R2 of twelve queues: median %.4f, worst %.4f; with known lengths %.4f, %.4f; equation 2 %.4f, %.4f",
		means[5], means[0], known[5], known[0], paper[5], paper[0])
	if means[5] < 0.99 || means[0] < 0.96 || known[0] < 0.995 {
		t.Error("waiting times are predicted too badly")
	}
	if means[5] <= paper[5] {
		t.Error("the intercept gains nothing")
	}
}

// TestQuantilesCover: where the estimator is fitted to one queue and tested on another,
// nine of ten answers come before the 90 % quantile, in the queue's first half as in
// its second. An instance with few slots has long waits, one with many long residences.
func TestQuantilesCover(t *testing.T) {
	few := mistral
	few.slots = 24
	for _, c := range []card{mistral, few} {
		rng := seeded.New(7, "quantiles")
		var covered, asked [2]float64
		for range 12 {
			prompts, outputs := conversations(rng, 800)
			r, err := vqueue.Calibrate(c.drain(prompts, outputs), float64(c.slots))
			if err != nil {
				t.Fatal(err)
			}
			prompts, outputs = conversations(rng, 1000)
			ahead := 0.0
			for i, s := range c.drain(prompts, outputs) {
				asked[i/500]++
				if i%10 == 0 && s.End <= queuetest.AnswerTime(r, ahead).Quantile(0.9) {
					covered[i/500] += 10
				}
				ahead += r.Alpha*s.Prompt + r.Beta*r.OutputMean
			}
		}
		pooled := (covered[0] + covered[1]) / (asked[0] + asked[1])
		t.Logf("%d slots: %.3f are covered, %.3f of the first half, %.3f of the second", c.slots, pooled, covered[0]/asked[0], covered[1]/asked[1])
		if pooled < 0.85 || pooled > 0.95 || min(covered[0]/asked[0], covered[1]/asked[1]) < 0.8 {
			t.Errorf("%d slots: the 90 %% quantile is none", c.slots)
		}
	}
}

// TestGroupsEnd: nine of ten groups of a batch have ended by the 90 % quantile of
// their last answer, where the estimator is fitted to one queue and tested on others.
// With a few residences, as a plan has them, the same.
func TestGroupsEnd(t *testing.T) {
	rng := seeded.New(11, "groups")
	card, groups, ended, few := mistral, 0, 0, 0
	card.slots = 48
	for range 8 {
		prompts, outputs := conversations(rng, 800)
		r, err := vqueue.Calibrate(card.drain(prompts, outputs), float64(card.slots))
		if err != nil {
			t.Fatal(err)
		}
		planned := *r
		planned.Residences = nil
		for pair := range slices.Chunk(r.Residences, 2) {
			planned.Residences = append(planned.Residences, (pair[0]+pair[1])/2)
		}
		prompts, outputs = conversations(rng, 720)
		ahead := 0.0
		for group := range slices.Chunk(card.drain(prompts, outputs), card.slots) {
			work, last := float64(len(group))*r.Beta*r.OutputMean, 0.0
			for _, s := range group {
				work, last = work+r.Alpha*s.Prompt, max(last, s.End)
			}
			sigma := math.Sqrt(r.WaitVariance(ahead + work))
			if groups++; last <= r.AllAnsweredBy(0.9, r.Intercept+ahead, work, sigma, len(group)) {
				ended++
			}
			if last <= planned.AllAnsweredBy(0.9, r.Intercept+ahead, work, sigma, len(group)) {
				few++
			}
			ahead += work
		}
	}
	t.Logf("of %d groups %d have ended, %d by half of the residences", groups, ended, few)
	if share := float64(ended) / float64(groups); share < 0.82 || share > 0.97 {
		t.Errorf("%.3f of the groups have ended by the 90 %% quantile", share)
	}
	if share := float64(few) / float64(groups); share < 0.82 || share > 0.97 {
		t.Errorf("%.3f have, with half of the residences", share)
	}
	none := vqueue.RCT{Beta: 1e-3, OutputMean: 200, Prefill: 1, Decode: 0.05, Batch: 10}
	if got := none.AllAnsweredBy(0.9, 5, 2, 0, 1); math.Abs(got-16) > 0.05 { // one request, nothing varies
		t.Errorf("a request that starts at 5 s and takes 11 s ends at %g s", got)
	}
}

// TestFitErrorGrowsWithTheQueue: without what a calibration knows besides, answers are normal; the
// error of the fit counts more the longer the queue is.
func TestFitErrorGrowsWithTheQueue(t *testing.T) {
	r := vqueue.RCT{Beta: 1e-3, OutputMean: 200, OutputVar: 100, Prefill: 1, Decode: 0.05, Batch: 10, Intercept: -2}
	if d := queuetest.AnswerTime(&r, 12); math.Abs(d.Mean()-21) > 1e-9 || math.Abs(d.Var()-0.25) > 1e-9 {
		t.Errorf("mean %g, variance %g, want 21 and .25", d.Mean(), d.Var())
	}
	r.NoiseVariance, r.FittedWork, r.Residences = 0.5, 100, []float64{9, 11, 13}
	near, far := queuetest.WaitDistribution(&r, 12), queuetest.WaitDistribution(&r, 102)
	if near.Mu != 10 || math.Abs(near.Sigma*near.Sigma-(6+0.72)) > 1e-9 || math.Abs(far.Sigma*far.Sigma-(51+52.02)) > 1e-9 {
		t.Errorf("waiting %+v and %+v", near, far)
	}
	if d := queuetest.AnswerTime(&r, 12); math.Abs(d.Mean()-21) > 1e-9 || math.Abs(d.Var()-(6.72+8./3)) > 1e-9 {
		t.Errorf("mean %g, variance %g with stays", d.Mean(), d.Var())
	}
	r.FillShare = 0.9
	if w := r.MeanWait(12); w != 10.8 {
		t.Errorf("while the first batch fills, %g s are waited, want 10.8", w)
	}
}

// TestFollowerTracksDrift: the instance becomes a quarter slower, and the estimator
// learns it; before, it stays what it was.
func TestFollowerTracksDrift(t *testing.T) {
	base := vqueue.RCT{Alpha: 1e-4, Beta: 1e-3, PromptMean: 1000, OutputMean: 200, OutputVar: 100, Decode: 0.05, Batch: 60, CommonSD: 0.05}
	var f vqueue.Follower
	if got := f.Adjust(base); !reflect.DeepEqual(got, base) {
		t.Errorf("a follower that saw nothing changes the estimator to %+v", got)
	}
	rng := seeded.New(1, "drift")
	for range 600 {
		f.AddWork(1.25*(1+0.1*rng.NormFloat64()), 1)
		f.AddAnswer(2000, 300+20*rng.NormFloat64())
	}
	got := f.Adjust(base)
	work, _ := got.Work(1)
	want := 1.25 * (2000*1e-4 + 300*1e-3)
	if math.Abs(work-want) > 0.03*want || math.Abs(got.Decode-1.25*0.05) > 0.002 {
		t.Errorf("work %.3f per request and %.4f per token, expected %.3f and %.4f", work, got.Decode, want, 1.25*0.05)
	}
	if math.Abs(math.Sqrt(got.OutputVar)-20) > 4 {
		t.Errorf("outputs vary by %.1f, expected 20", math.Sqrt(got.OutputVar))
	}
	f.AddWork(math.NaN(), 1)
	f.AddWork(1, 0)
	if math.IsNaN(f.Slowdown()) {
		t.Error("an impossible observation spoils the factor")
	}
}

// TestFirstAnswersAreShort: of a batch the short answers come first. They alone do not make the lengths theirs.
func TestFirstAnswersAreShort(t *testing.T) {
	base := vqueue.RCT{Alpha: 1e-4, Beta: 1e-3, PromptMean: 1000, OutputMean: 200, OutputVar: 100, Decode: 0.05, Batch: 60}
	var f vqueue.Follower
	mean := func(answers int) float64 {
		for range answers {
			f.AddAnswer(1000, 20)
		}
		return f.Adjust(base).OutputMean
	}
	if got := mean(40); got < 150 {
		t.Errorf("after 40 answers of a batch of 60 the mean is %.0f tokens, expected to be near 200", got)
	}
	if got := mean(560); math.Abs(got-20) > 1 {
		t.Errorf("after ten batches the mean is %.0f tokens, expected 20", got)
	}
}

func TestCalibrationRefuses(t *testing.T) {
	good := mistral.drain(conversations(seeded.New(1, "bad"), 200))
	for name, spoil := range map[string]func(run []vqueue.CalibrationRequest) []vqueue.CalibrationRequest{
		"too few": func(run []vqueue.CalibrationRequest) []vqueue.CalibrationRequest { return run[:100] },
		"NaN":     func(run []vqueue.CalibrationRequest) []vqueue.CalibrationRequest { run[5].End = math.NaN(); return run },
		"back": func(run []vqueue.CalibrationRequest) []vqueue.CalibrationRequest {
			run[5].End = run[5].Start - 1
			return run
		},
		"no tokens": func(run []vqueue.CalibrationRequest) []vqueue.CalibrationRequest { run[5].Output = 0; return run },
		"no queue": func(run []vqueue.CalibrationRequest) []vqueue.CalibrationRequest {
			for i := range run {
				run[i].Start = 0
			}
			return run
		},
	} {
		if _, err := vqueue.Calibrate(spoil(slices.Clone(good)), 121); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := vqueue.Calibrate(good, 0); err == nil {
		t.Error("no batch: no error")
	}
}
