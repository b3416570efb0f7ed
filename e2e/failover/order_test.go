package failover

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// done are the orders that a node was given to their end, and how often people's programs had to be started for them.
type done struct {
	ids            []string
	refused, tries int
	longest        time.Duration
}

// cleanUp has a node cleaned up, again and again, until nothing more is to happen.
func (s *stage) cleanUp(n *node) (d done) {
	n.dirty()
	for s.ctx.Err() == nil {
		digest := s.plan(n)
		if digest == "" {
			return d
		}
		id := fmt.Sprintf("order-%s-%08d-failover", n.name, len(d.ids)+d.refused)
		began := time.Now()
		n.truth.from(began, 0, uint64(len(left)))
		result := s.give(n, id, digest, &d)
		d.longest = max(d.longest, time.Since(began))
		if result.GetOutcome() == offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED {
			// The node was looked at while it became dirty.
			if n.runs(id) > 0 || n.leftovers() != len(left) {
				s.Errorf("order %s was refused (%s), ran %d times and left %d sets", id, result.GetMessage(), n.runs(id), n.leftovers())
			}
			d.refused++
			n.dirty()
			continue
		}
		d.ids = append(d.ids, id)
		s.wasDoneOnce(n, id, result)
		n.dirty()
		s.replay(n, id, digest, result, &d)
		s.pause(time.Duration(rand.IntN(2000)) * time.Millisecond)
	}
	return d
}

// wasDoneOnce compares what the person was told with the kernel and the journal.
func (s *stage) wasDoneOnce(n *node, id string, result *offrampv1.OrderResult) {
	if runs, left := n.runs(id), n.leftovers(); result.GetOutcome() != offrampv1.OrderOutcome_ORDER_OUTCOME_DONE || runs != 1 || left != 0 || result.GetNode() != n.name {
		s.Errorf("order %s of %s ended with %s (%s); it ran %d times, %d sets are left", id, n.name, result.GetOutcome(), result.GetMessage(), runs, left)
	}
}

// replay gives the same order when the node is dirty again, with the same plan. The answer is the same, and nothing is done.
func (s *stage) replay(n *node, id, digest string, first *offrampv1.OrderResult, d *done) {
	again := s.give(n, id, digest, d)
	if runs, there := n.runs(id), n.leftovers(); again.GetOutcome() != first.GetOutcome() || again.GetMessage() != first.GetMessage() || runs != 1 || there != len(left) {
		s.Errorf("order %s, given again, ended with %s (%s); it ran %d times, %d sets are there", id, again.GetOutcome(), again.GetMessage(), runs, there)
	}
}

// people runs kubectl-offramp, which may ask either replica, in either order.
func (s *stage) people(args ...string) (stdout, stderr string, code int) {
	first := rand.IntN(2)
	cmd := exec.Command(programs.Kubectl(), append(args, "--target", "none", "--insecure-plaintext", "--timeout", "30s", "-o", "json",
		"--aggregator", s.replicas[first].address(), "--also-aggregator", s.replicas[1-first].address())...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Errorf("%v: %v", args, err)
	}
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

func (s *stage) ask(args ...string) (result *offrampv1.OrderResult, stderr string, code int) {
	out, problems, code := s.people(args...)
	if out == "" {
		return nil, problems, code
	}
	result = &offrampv1.OrderResult{}
	if err := protojson.Unmarshal([]byte(out), result); err != nil {
		s.Errorf("%v: %v:\n%s", args, err, out)
		return nil, problems, code
	}
	return result, problems, code
}

// plan returns the digest of a plan that removes what is left; "" when the time is over.
func (s *stage) plan(n *node) string {
	for s.ctx.Err() == nil {
		result, _, _ := s.ask("cleanup", "plan", n.name)
		if result.GetPlan() != nil && len(result.GetPlan().GetOperations()) == len(left) {
			return hex.EncodeToString(result.GetPlan().GetDigest())
		}
		s.pause(200 * time.Millisecond)
	}
	return ""
}

// give gives an order until its result is known, however often that takes a new call.
func (s *stage) give(n *node, id, digest string, d *done) *offrampv1.OrderResult {
	problems, code := "", 0
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		d.tries++
		var result *offrampv1.OrderResult
		if result, problems, code = s.ask("cleanup", "apply", n.name, "--plan", digest, "--order", id); result != nil {
			return result
		}
		if code != 1 && code != 4 {
			s.Errorf("order %s ended with %d and no result:\n%s", id, code, problems)
		}
	}
	s.Errorf("order %s is lost: exit code %d\n%s", id, code, problems)
	return nil
}

// agrees compares the orders of a node with its journal, its audit log and those of the replicas.
func (s *stage) agrees(n *node, d done) {
	s.Helper()
	onNode, err := os.ReadFile(filepath.Join(n.state, "audit.log"))
	if err != nil {
		s.Error(err)
	}
	var audits string
	for _, r := range s.replicas {
		text, err := os.ReadFile(r.audit)
		if err != nil {
			s.Error(err)
		}
		audits += string(text)
	}
	for _, id := range d.ids {
		if got := strings.Count(string(onNode), `"order":"`+id+`"`); got != 1 {
			s.Errorf("the audit log of %s has order %s %d times", n.name, id, got)
		}
		words := map[string]int{}
		for _, line := range regexp.MustCompile(`(?m)^.*"order":"`+id+`".*$`).FindAllString(audits, -1) {
			words[regexp.MustCompile(`"outcome":"(\w+)"`).FindStringSubmatch(line)[1]]++
		}
		if words["done"] == 0 || words["refused"]+words["failed"]+words["interrupted"] > 0 {
			s.Errorf("the audit logs of the replicas have order %s as %v", id, words)
		}
	}
	s.knowsNoOther(n, d)
}

// knowsNoOther holds that the journal, which keeps the newest clean-ups, has these orders and no others, none of them twice.
func (s *stage) knowsNoOther(n *node, d done) {
	s.Helper()
	files, _ := filepath.Glob(filepath.Join(n.state, "journal", "*.jsonl"))
	var all string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.Error(err)
		}
		all += string(text)
	}
	seen := map[string]bool{}
	for _, found := range regexp.MustCompile(`"order":"([^"]+)"`).FindAllStringSubmatch(all, -1) {
		if seen[found[1]] || !slices.Contains(d.ids, found[1]) {
			s.Errorf("the journal of %s has order %s, which was done before or never", n.name, found[1])
		}
		seen[found[1]] = true
	}
	if len(seen) < min(len(d.ids), 10) {
		s.Errorf("the journal of %s has %d clean-ups of %d", n.name, len(seen), len(d.ids))
	}
}
