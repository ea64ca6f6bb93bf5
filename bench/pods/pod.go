package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// pod is a pod of one container, and its process.
type pod struct {
	cluster             *cluster
	set                 *appsv1.StatefulSet
	name, node, address string
	spec                *corev1.PodSpec
	labels              map[string]string
	root                string
	mounts              [][3]string // source, path in the pod, options

	ready     atomic.Bool
	restarts  atomic.Int64 // of its container
	mu        sync.Mutex
	process   *os.Process
	leaving   bool
	beforeEnd *os.Process // what runs before the end; nil if nothing does
	log       *os.File
	ended     chan struct{} // closed when the pod runs no more
}

func (p *pod) container() *corev1.Container { return &p.spec.Containers[0] }

// has reports whether the pod has all of some labels.
func (p *pod) has(labels map[string]string) bool {
	for k, v := range labels {
		if p.labels[k] != v {
			return false
		}
	}
	return len(labels) > 0
}

// port returns the number of a port.
func (p *pod) port(name string) int {
	i := slices.IndexFunc(p.container().Ports, func(q corev1.ContainerPort) bool { return q.Name == name })
	return int(p.container().Ports[i].ContainerPort)
}

// makeRoot makes the pod's root folder with what the image has, and its volumes.
func (p *pod) makeRoot() error {
	p.root = filepath.Join(p.cluster.scratch, p.name)
	files := map[string]string{"etc/hosts": p.cluster.hosts(), "etc/nsswitch.conf": "hosts: files\n"}
	p.mounts = [][3]string{{"/usr", "usr", "ro"}, {"/proc", "proc", "rw"}, {"/dev", "dev", "rw"}, {p.cluster.image, "opt/inferplan", "ro"}, {p.cluster.models, "models", "ro"}}
	for _, m := range p.container().VolumeMounts {
		i := slices.IndexFunc(p.spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		source, options, err := p.makeVolume(&p.spec.Volumes[i])
		if err != nil {
			return err
		}
		p.mounts = append(p.mounts, [3]string{source, strings.TrimPrefix(m.MountPath, "/"), options})
	}
	var errs []error
	for _, folder := range append(p.mounts, [3]string{"", "etc"}) {
		errs = append(errs, os.MkdirAll(filepath.Join(p.root, folder[1]), 0o755))
	}
	for path, text := range files {
		errs = append(errs, os.WriteFile(filepath.Join(p.root, path), []byte(text), 0o644))
	}
	for _, name := range []string{"bin", "lib", "lib64", "sbin"} {
		errs = append(errs, os.Symlink("usr/"+name, filepath.Join(p.root, name)))
	}
	return errors.Join(errs...)
}

// makeVolume makes a folder with what a volume has: the keys of a secret that are named, a ConfigMap, or nothing.
func (p *pod) makeVolume(v *corev1.Volume) (dir, options string, err error) {
	dir = filepath.Join(p.cluster.scratch, p.name+".volumes", v.Name)
	files, mode := map[string][]byte{}, os.FileMode(0o644)
	switch {
	case v.Secret != nil:
		mode = os.FileMode(*v.Secret.DefaultMode)
		for _, item := range v.Secret.Items {
			data, ok := p.cluster.secrets[v.Secret.SecretName][item.Key]
			if !ok {
				return "", "", fmt.Errorf("%s: there is no key %s of secret %s", p.name, item.Key, v.Secret.SecretName)
			}
			files[item.Path] = data
		}
	case v.ConfigMap != nil:
		name := p.cluster.config[v.ConfigMap.Name]
		if files[name], err = os.ReadFile(filepath.Join(p.cluster.dir, "base", name)); err != nil {
			return "", "", err
		}
	default:
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", "", err
		}
		return dir, "rw", os.Chmod(dir, 0o777)
	}
	return dir, "ro", p.project(dir, files, mode)
}

// project puts files into a volume at once, as kubelet does: a new folder, to which the link ..data is then turned.
func (p *pod) project(dir string, files map[string][]byte, mode os.FileMode) error {
	fresh := fmt.Sprintf("..%d", time.Now().UnixNano())
	errs := []error{os.MkdirAll(filepath.Join(dir, fresh), 0o755)}
	for name, data := range files {
		path := filepath.Join(dir, fresh, name)
		errs = append(errs, os.WriteFile(path, data, mode), os.Chmod(path, mode), os.Chown(path, 0, int(*p.spec.SecurityContext.FSGroup)))
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			errs = append(errs, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	return errors.Join(append(errs, os.Symlink(fresh, next), os.Rename(next, filepath.Join(dir, "..data")))...)
}

// enter is a shell program that makes a process the pod's container: root, host name and user, mounts up to --, and the
// command.
const enter = `set -e
root=$1 name=$2 user=$3 group=$4 volumes=$5; shift 5
mount --make-rprivate /
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
  mount --rbind "$1" "$root/$2"
  [ "$3" = rw ] || mount -o remount,bind,ro "$root/$2"
  shift 3
done
shift
mount -o remount,bind,ro "$root"
hostname "$name"
exec chroot "$root" /usr/bin/setpriv --reuid="$user" --regid="$group" --groups="$volumes" --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`

// hook runs the command that the container has for the time before its end, in the container.
func (p *pod) hook() error {
	l := p.container().Lifecycle
	if l == nil || l.PreStop == nil {
		return nil
	}
	p.mu.Lock()
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(p.process.Pid), "-m", "-u", "-n", "-r"}, l.PreStop.Exec.Command...)...)
	err := cmd.Start()
	p.beforeEnd = cmd.Process
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// start starts the container's process.
func (p *pod) start() (*exec.Cmd, error) {
	x, s := p.container(), p.spec.SecurityContext
	args := []string{"netns", "exec", p.node, "unshare", "--mount", "--uts", "sh", "-c", enter, "sh", p.root, p.name, fmt.Sprint(*s.RunAsUser), fmt.Sprint(*s.RunAsGroup), fmt.Sprint(*s.FSGroup)}
	for _, m := range p.mounts {
		args = append(args, m[:]...)
	}
	cmd := exec.Command("ip", slices.Concat(args, []string{"--"}, x.Command, x.Args)...)
	cmd.Env = []string{"PATH=/opt/inferplan:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "HOSTNAME=" + p.name}
	for _, e := range x.Env {
		ref := e.ValueFrom.SecretKeyRef
		cmd.Env = append(cmd.Env, e.Name+"="+string(p.cluster.secrets[ref.Name][ref.Key]))
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.log, p.log, &syscall.SysProcAttr{Setpgid: true}
	return cmd, cmd.Start()
}

// run runs the pod until it is deleted: a container that ends is started again a second later.
func (p *pod) run(ctx context.Context) error {
	var err error
	if p.log, err = os.OpenFile(filepath.Join(p.cluster.scratch, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	p.ended, p.leaving = make(chan struct{}), false
	go func() {
		defer close(p.ended)
		defer p.log.Close()
		for ctx.Err() == nil {
			cmd, err := p.start()
			if err != nil {
				fmt.Fprintf(p.cluster.log, "%s: %v\n", p.name, err)
				return
			}
			p.mu.Lock()
			p.process = cmd.Process
			p.mu.Unlock()
			probes, stop := context.WithCancel(ctx)
			go p.probe(probes)
			_ = cmd.Wait()
			stop()
			p.ready.Store(false)
			p.mu.Lock()
			leaving := p.leaving
			p.mu.Unlock()
			if leaving {
				return
			}
			p.restarts.Add(1)
			time.Sleep(time.Second)
		}
	}()
	return nil
}

// probe asks the container what its probes say: until it has started, whether it is ready and whether it lives. A container
// without a probe counts as started, ready or alive.
func (p *pod) probe(ctx context.Context) {
	x := p.container()
	if x.StartupProbe != nil {
		p.every(ctx, x.StartupProbe, func(bool) bool { return true })
	}
	if x.LivenessProbe != nil {
		go p.every(ctx, x.LivenessProbe, func(bool) bool { return false })
	}
	if x.ReadinessProbe == nil {
		p.ready.Store(true)
		return
	}
	p.every(ctx, x.ReadinessProbe, func(ok bool) bool { p.ready.Store(ok); return false })
}

// every asks a probe until it succeeded and done says so, or the context ends. tell is told of each change: of a success,
// and of as many failures in a row as the probe bears, after which a probe other than of readiness kills the container.
func (p *pod) every(ctx context.Context, probe *corev1.Probe, done func(ok bool) bool) {
	failures := int32(0)
	for ctx.Err() == nil {
		err := p.ask(ctx, probe)
		switch failures++; {
		case err == nil:
			if failures = 0; done(true) {
				return
			}
		case failures >= probe.FailureThreshold && probe == p.container().ReadinessProbe:
			done(false)
		case failures >= probe.FailureThreshold && ctx.Err() == nil:
			fmt.Fprintf(p.cluster.log, "%s does not live: %v\n", p.name, err)
			p.signal(syscall.SIGKILL)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(probe.PeriodSeconds) * time.Second):
		}
	}
}

// ask asks a probe once.
func (p *pod) ask(ctx context.Context, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(probe.TimeoutSeconds)*time.Second)
	defer cancel()
	url := "http://" + net.JoinHostPort(p.address, strconv.Itoa(probe.HTTPGet.Port.IntValue())) + probe.HTTPGet.Path
	_, err := get(ctx, url, "")
	return err
}

// get returns what a URL answers. A status other than 200 is an error.
func get(ctx context.Context, url, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}

// signal sends a signal to the container: SIGKILL to all of its processes.
func (p *pod) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.process == nil:
	case s == syscall.SIGKILL:
		_ = syscall.Kill(-p.process.Pid, s)
	default:
		_ = p.process.Signal(s)
	}
}

// remove deletes the pod: what its container runs before the end, SIGTERM, and SIGKILL when its time to end is over, which
// is an error.
func (p *pod) remove() error {
	p.mu.Lock()
	p.leaving = true
	p.mu.Unlock()
	limit := time.After(time.Duration(*p.spec.TerminationGracePeriodSeconds) * time.Second)
	if err := p.hook(); err != nil {
		return fmt.Errorf("%s: before its end: %w", p.name, err)
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-limit:
		p.signal(syscall.SIGKILL)
		<-p.ended
		return fmt.Errorf("%s was killed after %d s", p.name, *p.spec.TerminationGracePeriodSeconds)
	}
}

var (
	planInForce = regexp.MustCompile(`inferplan_plan_info\{[^}]*sha256="([0-9a-f]+)"`)
	workerUp    = regexp.MustCompile(`(?m)^inferplan_worker_up\{[^}]*\} 1$`)
)

// state returns the hash of the plan in force, and how many workers the server has.
func (p *pod) state(ctx context.Context, token string) (hash string, workers int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := get(ctx, "http://"+net.JoinHostPort(p.address, strconv.Itoa(p.port("metrics")))+"/metrics", token)
	if err != nil {
		return "", 0, err
	}
	if m := planInForce.FindStringSubmatch(text); m != nil {
		hash = m[1]
	}
	return hash, len(workerUp.FindAllString(text, -1)), nil
}
