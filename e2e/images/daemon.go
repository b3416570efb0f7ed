package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startDeadline = time.Minute
	stopDeadline  = 20 * time.Second
	poll          = 100 * time.Millisecond
)

// Daemon is a docker daemon of one's own.
type Daemon struct {
	// Client is the path of the docker program, and Host where it finds the daemon, as unix:///path.
	Client, Host string

	scratch string
	command *exec.Cmd
	ended   chan struct{}
	unlock  func()
}

// Start starts a daemon that keeps its images in the folder data, once nobody else uses that folder. Needs root.
//
// It makes no network and no firewall rule: what it runs has none or its host's. It is the first process of a PID namespace, so
// that its containerd and all containers die with it, and its mounts are in a namespace that goes with them.
func Start(ctx context.Context, data string) (*Daemon, error) {
	unlock, err := lockFolder(ctx, data)
	if err != nil {
		return nil, err
	}
	d := &Daemon{Client: client(), ended: make(chan struct{}), unlock: unlock}
	if d.scratch, err = os.MkdirTemp("/run", "offramp-docker-"); err != nil {
		unlock()
		return nil, fmt.Errorf("making the daemon's folder: %w", err)
	}
	d.Host = "unix://" + d.scratch + "/sock"
	if err := d.start(ctx, data); err != nil {
		d.release()
		return nil, err
	}
	if err := d.ready(ctx); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

func (d *Daemon) start(ctx context.Context, data string) error {
	d.command = exec.CommandContext(context.WithoutCancel(ctx), "unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc",
		"dockerd", "--data-root", data, "--exec-root", d.scratch+"/exec", "--pidfile", d.scratch+"/pid", "--host", d.Host,
		"--cgroup-parent", "/"+filepath.Base(d.scratch),
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
	log, err := os.Create(d.logFile())
	if err != nil {
		return fmt.Errorf("making the daemon's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	d.command.Stdout, d.command.Stderr = log, log
	d.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := d.command.Start(); err != nil {
		return fmt.Errorf("starting dockerd: %w", err)
	}
	go func() {
		defer close(d.ended)
		_ = d.command.Wait()
	}()
	return nil
}

// ready waits until the daemon answers.
func (d *Daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	for {
		if _, err := d.Run(ctx, nil, "version"); err == nil {
			return nil
		}
		select {
		case <-d.ended:
			return fmt.Errorf("dockerd ended: %s", d.Log())
		case <-ctx.Done():
			return fmt.Errorf("waiting for dockerd: %w", ctx.Err())
		case <-time.After(poll):
		}
	}
}

// Stop ends the daemon and all that it runs. It returns when nothing of it is left.
func (d *Daemon) Stop() error {
	defer d.release()
	select {
	case <-d.ended:
		return nil
	default:
	}
	if inner := firstChild(d.command.Process.Pid); inner > 0 {
		_ = syscall.Kill(inner, syscall.SIGTERM)
	}
	select {
	case <-d.ended:
		return nil
	case <-time.After(stopDeadline):
	}
	err := d.command.Process.Kill()
	<-d.ended
	return errors.Join(errors.New("dockerd did not end when it was asked to, and was killed"), err)
}

func (d *Daemon) release() {
	_ = os.RemoveAll(d.scratch)
	removeGroups(filepath.Base(d.scratch))
	d.unlock()
}

// Run runs docker against this daemon and returns what it printed on its standard output.
func (d *Daemon) Run(ctx context.Context, input io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.Client, args...)
	cmd.Env = append(os.Environ(), d.Environment()...)
	cmd.Stdin = input
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}

// Environment is what makes any docker program use this daemon.
func (d *Daemon) Environment() []string {
	return []string{"DOCKER_HOST=" + d.Host, "DOCKER_CONTEXT=", "DOCKER_CONFIG=" + filepath.Join(d.scratch, "config")}
}

// client is the docker program that came with the daemon: one of another origin may lack the part that builds.
func client() string {
	const debian = "/usr/bin/docker"
	if _, err := os.Stat(debian); err == nil {
		return debian
	}
	return "docker"
}

// Log is what the daemon has printed so far; to be read when something went wrong.
func (d *Daemon) Log() string {
	text, err := os.ReadFile(d.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (d *Daemon) logFile() string { return filepath.Join(d.scratch, "log") }
