package cleanup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	backupFolder  = "backups"
	manifestFile  = "manifest.json"
	objectsFile   = "objects.json"
	partialSuffix = ".partial"
	// manifestVersion is raised when an older agent could not restore what a newer one saved.
	manifestVersion = 1
)

// Manifest says what is in a backup.
type Manifest struct {
	Version    int       `json:"version"`
	ID         string    `json:"id"`
	Node       string    `json:"node"`
	MadeAt     time.Time `json:"made_at"`
	BootID     string    `json:"boot_id"`
	Target     string    `json:"target"`
	Running    string    `json:"running_mode"`
	PlanDigest string    `json:"plan_digest"`
	// Files by name.
	Files map[string]ManifestFile `json:"files"`
}

// ManifestFile is a file of a backup.
type ManifestFile struct {
	SHA256 string `json:"sha256"`
	Bytes  int    `json:"bytes"`
	// Restore is the command with which people restore it by hand; empty for what only offramp-agent reads.
	Restore string `json:"restore,omitempty"`
}

// writeBackup writes what a plan removes to the disk. It is complete once its folder has its final name: what has another
// is none.
func writeBackup(stateDir, id string, plan *offrampv1.Plan, objects *saved, now time.Time) error {
	files, err := backupFiles(objects)
	if err != nil {
		return err
	}
	manifest := &Manifest{
		Version: manifestVersion, ID: id, Node: plan.GetNode(), MadeAt: now.UTC(), BootID: plan.GetBootId(),
		Target: plan.GetTarget().String(), Running: plan.GetRunningMode().String(),
		PlanDigest: hex.EncodeToString(plan.GetDigest()), Files: map[string]ManifestFile{},
	}
	for name, file := range files {
		sum := sha256.Sum256(file.content)
		manifest.Files[name] = ManifestFile{hex.EncodeToString(sum[:]), len(file.content), file.restore}
	}
	text, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("write the backup's manifest: %w", err)
	}
	files[manifestFile] = backupFile{content: append(text, '\n')}
	return storeBackup(filepath.Join(stateDir, backupFolder), id, files)
}

func storeBackup(dir, id string, files map[string]backupFile) error {
	partial := filepath.Join(dir, id+partialSuffix)
	if err := makeFolder(dir); err != nil {
		return err
	}
	if err := os.Mkdir(partial, 0o700); err != nil {
		return fmt.Errorf("begin the backup: %w", err)
	}
	for name, file := range files {
		if err := writeDurably(filepath.Join(partial, name), file.content); err != nil {
			return errors.Join(err, os.RemoveAll(partial))
		}
	}
	if err := syncFolder(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, filepath.Join(dir, id)); err != nil {
		return fmt.Errorf("finish the backup: %w", err)
	}
	return syncFolder(dir)
}

// backupFile is a file of a backup, with the command for people.
type backupFile struct {
	content []byte
	restore string
}

// backupFiles puts the files together; what a plan does not remove has none.
func backupFiles(objects *saved) (map[string]backupFile, error) {
	text, err := json.Marshal(objects)
	if err != nil {
		return nil, fmt.Errorf("put the backup together: %w", err)
	}
	files := map[string]backupFile{objectsFile: {content: text}}
	add := func(name, content, restore string) {
		if content != "" {
			files[name] = backupFile{[]byte(content), restore}
		}
	}
	for i := range objects.Rulesets {
		backend := sectionWords(objects.Rulesets[i].Section)
		name := backend + ".rules"
		add(name, ruleLines(&objects.Rulesets[i]), backend+"-restore --noflush < "+name)
	}
	add("ipset.save", objects.setLines(), "ipset restore < ipset.save")
	add("ipvsadm.save", objects.serverLines(), "ipvsadm -R < ipvsadm.save")
	add("ip.batch", objects.linkLines(), "ip -batch ip.batch")
	add("nfacct.save", lines("add %s\n", objects.Accounting), "nfacct add NAME")
	var sysctls strings.Builder
	for _, sysctl := range objects.Sysctls {
		fmt.Fprintf(&sysctls, "%s = %s\n", sysctl.Path, sysctl.From)
	}
	add("sysctl.conf", sysctls.String(), "sysctl -p sysctl.conf")
	return files, nil
}

func (s *saved) setLines() string {
	var text strings.Builder
	for i := range s.Sets {
		text.WriteString(s.Sets[i].lines())
	}
	return text.String()
}

func (s *saved) serverLines() string {
	var text strings.Builder
	for i := range s.Servers {
		text.WriteString(ipvsadmLines(&s.Servers[i]))
	}
	return text.String()
}

func (s *saved) linkLines() string {
	if s.Link == nil {
		return ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "link add %s type %s\n", s.Link.Name, s.Link.Kind)
	for _, address := range inMakingOrder(s.Link.Addresses) {
		fmt.Fprintf(&text, "address add %s dev %s\n", address, s.Link.Name)
	}
	return text.String()
}

// inMakingOrder puts the addresses of a link into the order in which they have to be added, for the kernel to list them as
// before: it puts a new address of IPv4 last, one of IPv6 first.
func inMakingOrder(listed []netip.Prefix) []netip.Prefix {
	var ordered, reversed []netip.Prefix
	for _, prefix := range listed {
		if prefix.Addr().Is4() {
			ordered = append(ordered, prefix)
			continue
		}
		reversed = append(reversed, prefix)
	}
	slices.Reverse(reversed)
	return append(ordered, reversed...)
}

func lines(format string, items []string) string {
	var text strings.Builder
	for _, item := range items {
		fmt.Fprintf(&text, format, item)
	}
	return text.String()
}
