<?php

declare(strict_types=1);

namespace Latchgate\Symfony;

use Symfony\Component\Lock\BlockingSharedLockStoreInterface;
use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\InvalidArgumentException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key;

/**
 * A store of symfony/lock that keeps its locks in a Latchgate gateway.
 *
 * The state in a Key is the lease: its token, its fencing token and its mode. A Key may be serialized, and its text is
 * then as secret as the token.
 */
final class LatchgateStore implements BlockingStoreInterface, BlockingSharedLockStoreInterface
{
    /** How long one request waits for a lock, in ms. A blocking acquire repeats such requests in one place of the queue. */
    private const WAIT_MS = 25_000;
    /** How long one request may take beyond its wait, in seconds. */
    private const ANSWER_S = 10.0;
    /** For how long a request without a definite answer is repeated, in seconds. */
    private const REPEAT_S = 15.0;
    /** Pauses between repetitions, in seconds: the first one and the longest. */
    private const PAUSES_S = [0.1, 1.0];
    /** A name that the gateway takes as it is, by its rules for names. */
    private const NAME = '~^(?!.*//)(?!/)[A-Za-z0-9._:@/-]{1,200}(?<!/)$~D';
    private const NO_NAME = '~(^|/)\.\.?(/|$)|/(break|check|granted-order|history|hold|release|renew)$~D';

    /** @var string[] */
    private array $urls;

    /**
     * @param string      $url        the address of the gateway, or several addresses on one store, separated by commas
     * @param string|null $apiKey     the API key, if the gateway has keys
     * @param float       $initialTtl the TTL of a lease until the first refresh, in seconds
     * @param string      $owner      the text by which people know the holder
     */
    public function __construct(
        string $url = 'http://localhost:7420',
        #[\SensitiveParameter] private ?string $apiKey = null,
        private float $initialTtl = 30.0,
        private string $owner = '',
    ) {
        $this->urls = array_map(static fn (string $one): string => rtrim(trim($one), '/'), explode(',', $url));
        foreach ($this->urls as $one) {
            if (!preg_match('~^https?://~', $one)) {
                throw new InvalidArgumentException(sprintf('The address of the gateway must begin with http:// or https://, not "%s".', $one));
            }
        }
        if ($initialTtl < 0.1) {
            throw new InvalidArgumentException(sprintf('The TTL must be at least 0.1 s, not %s.', $initialTtl));
        }
        if ('' === $owner) {
            $this->owner = sprintf('%s:%d', gethostname() ?: 'php', getmypid());
        }
    }

    /** The fencing token of the lease that a key has: send it with each write that the lock protects. */
    public function fencingToken(Key $key): ?int
    {
        return $this->lease($key)['fencing_token'] ?? null;
    }

    public function save(Key $key): void
    {
        $this->acquire($key, 'exclusive', false);
    }

    public function waitAndSave(Key $key): void
    {
        $this->acquire($key, 'exclusive', true);
    }

    public function saveRead(Key $key): void
    {
        $this->acquire($key, 'shared', false);
    }

    public function waitAndSaveRead(Key $key): void
    {
        $this->acquire($key, 'shared', true);
    }

    public function putOffExpiration(Key $key, float $ttl): void
    {
        $lease = $this->lease($key) ?? throw new LockConflictedException();
        $body = ['ttl_ms' => (int) ceil($ttl * 1000)];
        [$status, $answer, $sent] = $this->repeat('PUT', $key, '/renew', $body, ['Lock-Token' => $lease['token']]);
        if (410 === $status) {
            $key->removeState(self::class);
            throw new LockConflictedException();
        }
        $this->count($key, $this->expect($status, $answer), $sent);
    }

    public function delete(Key $key): void
    {
        if (null === $lease = $this->lease($key)) {
            return;
        }
        // Whatever the answer is, the key may not be used as held any more.
        $key->removeState(self::class);
        [$status, $answer, , $copies] = $this->repeat('DELETE', $key, '', null, ['Lock-Token' => $lease['token']]);
        if (410 === $status) {
            // After a copy without an answer, a 410 may mean that this copy has released the lock.
            throw new LockReleasingException(sprintf(1 === $copies
                ? 'The lock "%s" was lost before it was released: another holder may have had it.'
                : 'It is not known whether the lock "%s" was held until its release: an earlier copy of the release had no answer.', $key));
        }
        if (204 !== $status) {
            throw new LockReleasingException($this->failure($status, $answer));
        }
    }

    public function exists(Key $key): bool
    {
        if (null === $lease = $this->lease($key)) {
            return false;
        }
        [$status, $answer] = $this->repeat('GET', $key, '/check', null, ['Fencing-Token' => (string) $lease['fencing_token']]);
        $code = $answer['code'] ?? null;
        if (403 === $status && 'stale-fencing-token' === $code) {
            return false;
        }
        if (403 === $status && 'forbidden' === $code) {
            // The API key may not check fencing tokens, and perhaps it may see the holders.
            [$status, $answer] = $this->repeat('GET', $key, '', null, []);
            $holders = array_column($this->expect($status, $answer)['holders'] ?? [], 'fencing_token');

            return \in_array($lease['fencing_token'], $holders, true);
        }
        $this->expect($status, $answer);

        return true;
    }

    private function acquire(Key $key, string $mode, bool $waits): void
    {
        $lease = $this->lease($key);
        if (null !== $lease && $mode === $lease['mode'] && $this->exists($key)) {
            $this->putOffExpiration($key, $this->initialTtl);

            return;
        }
        if (null !== $lease) {
            // A lease cannot change its mode. Another caller may get the lock between the release and the acquire.
            $this->delete($key);
        }
        try {
            $this->acquireAnew($key, $mode, $waits);
        } catch (LockConflictedException $conflict) {
            if (null !== $lease && 'shared' === $lease['mode'] && 'exclusive' === $mode) {
                // The promotion has failed: the reader goes on as a reader, if the lock can still be shared.
                $this->acquireAnew($key, 'shared', false);
            }
            throw $conflict;
        }
    }

    private function acquireAnew(Key $key, string $mode, bool $waits): void
    {
        $body = ['ttl_ms' => (int) ceil($this->initialTtl * 1000), 'mode' => $mode, 'owner' => $this->owner];
        if ($waits) {
            $body['wait_ms'] = self::WAIT_MS;
        }
        $attempt = self::random();
        $began = self::now();
        while (true) {
            [$status, $answer, $sent] = $this->repeat('POST', $key, '', $body, ['Idempotency-Key' => $attempt]);
            if (423 === $status && $waits) {
                continue;
            }
            if (423 === $status) {
                throw new LockConflictedException((string) ($answer['detail'] ?? ''));
            }
            if (400 === $status && \in_array('wait_ms', array_column($answer['errors'] ?? [], 'field'), true) && $body['wait_ms'] > 1) {
                // The gateway allows shorter waits only.
                $body['wait_ms'] = intdiv($body['wait_ms'], 2);
                continue;
            }
            if (409 === $status && 'idempotency-expired' === ($answer['code'] ?? null)) {
                // The lease of a copy without an answer has ended meanwhile.
                $attempt = self::random();
                $began = self::now();
                continue;
            }
            break;
        }
        $answer = $this->expect($status, $answer);
        $key->setState(self::class, ['token' => $answer['token'], 'fencing_token' => $answer['fencing_token'], 'mode' => $mode]);
        try {
            // The wait was over before the time that is left was read, so it does not count.
            $this->count($key, $answer, max($sent, $began + $answer['waited_ms'] / 1000));
        } catch (LockConflictedException $late) {
            $this->delete($key);
            throw $late;
        }
    }

    /** @return array{token: string, fencing_token: int, mode: string}|null */
    private function lease(Key $key): ?array
    {
        return $key->hasState(self::class) ? $key->getState(self::class) : null;
    }

    /**
     * Counts the time that is left of a lease from a time before the gateway has read it, which is always safe.
     *
     * @param array<string, mixed> $answer
     */
    private function count(Key $key, array $answer, float $since): void
    {
        $left = (float) $answer['expires_in_ms'] / 1000 - (self::now() - $since);
        if ($left <= 0) {
            throw new LockConflictedException('The answer arrived after the lease had ended.');
        }
        $key->resetLifetime();
        $key->reduceLifetime($left);
    }

    /**
     * Sends a request, and again while its outcome is not known or the gateway cannot serve.
     *
     * @param array<string, mixed>|null $body
     * @param array<string, string>     $headers
     *
     * @return array{0: int, 1: array<string, mixed>, 2: float, 3: int} status (0: no answer), document, when the copy
     *                                                                  was sent, how many copies may have been carried out
     */
    private function repeat(string $method, Key $key, string $path, ?array $body, #[\SensitiveParameter] array $headers): array
    {
        $path = '/locks/'.rawurlencode(self::name((string) $key)).$path;
        $end = self::now() + self::REPEAT_S + ($body['wait_ms'] ?? 0) / 1000;
        for ($pause = self::PAUSES_S[0], $carried = 1, $try = 0;; $pause = min($pause * 2, self::PAUSES_S[1]), ++$try) {
            $sent = self::now();
            [$status, $answer] = $this->send($this->urls[$try % \count($this->urls)].$path, $method, $body, $headers);
            $code = $answer['code'] ?? null;
            $isProblem = null !== $code;
            $again = 0 === $status || 429 === $status || 'request-replaced' === $code
                || \in_array($status, [408, 503], true) && 'fence-exhausted' !== $code
                || 504 === $status || 500 <= $status && 'fence-exhausted' !== $code && (!$isProblem || 'POST' !== $method);
            if (!$again || self::now() + $pause > $end) {
                return [$status, $answer, $sent, $carried];
            }
            if (!$isProblem || 504 === $status) {
                ++$carried;
            }
            usleep((int) ($pause * 1e6));
        }
    }

    /**
     * @param array<string, mixed>|null $body
     * @param array<string, string>     $headers
     *
     * @return array{0: int, 1: array<string, mixed>}
     */
    private function send(string $url, string $method, ?array $body, #[\SensitiveParameter] array $headers): array
    {
        $headers += ['Accept' => 'application/json', 'Connection' => 'close'];
        if (null !== $this->apiKey) {
            $headers['Authorization'] = 'Bearer '.$this->apiKey;
        }
        if (null !== $body) {
            $headers['Content-Type'] = 'application/json';
        }
        $lines = array_map(static fn (string $name, string $value): string => $name.': '.$value, array_keys($headers), $headers);
        $context = stream_context_create(['http' => [
            'method' => $method,
            'header' => $lines,
            'content' => null === $body ? '' : json_encode($body, \JSON_THROW_ON_ERROR | \JSON_INVALID_UTF8_SUBSTITUTE),
            'protocol_version' => 1.1,
            'ignore_errors' => true,
            'follow_location' => 0,
            'timeout' => self::ANSWER_S + ($body['wait_ms'] ?? 0) / 1000,
        ]]);
        // The warning of a failed connection is no more than "no answer", which the caller handles.
        $stream = @fopen($url, 'r', false, $context);
        if (false === $stream) {
            return [0, []];
        }
        $text = stream_get_contents($stream, 1 << 20);
        $meta = stream_get_meta_data($stream);
        fclose($stream);
        $status = preg_match('~^HTTP/\S+ (\d{3})~', (string) ($meta['wrapper_data'][0] ?? ''), $found) ? (int) $found[1] : 0;
        $answer = \is_string($text) ? json_decode($text, true) : null;
        if ($meta['timed_out'] || 204 !== $status && 300 > $status && !\is_array($answer)) {
            // A success without its whole document says nothing about the lease.
            return [0, []];
        }

        return [$status, \is_array($answer) ? $answer : []];
    }

    /**
     * @param array<string, mixed> $answer
     *
     * @return array<string, mixed>
     */
    private function expect(int $status, array $answer): array
    {
        if (200 <= $status && $status < 300) {
            return $answer;
        }
        throw new LockStorageException($this->failure($status, $answer));
    }

    /** @param array<string, mixed> $answer */
    private function failure(int $status, array $answer): string
    {
        $what = 0 === $status ? 'no answer' : sprintf('%d %s', $status, $answer['code'] ?? '');

        return trim(sprintf('The gateway %s: %s. %s', implode(', ', $this->urls), trim($what), $answer['detail'] ?? ''));
    }

    /**
     * The name of a lock for a resource of Symfony. A text that is a name without ~ stays as it is, so that other clients
     * can use the lock; in any other text each byte that is not in such a name becomes ~ and two hexadecimal digits.
     */
    private static function name(string $resource): string
    {
        if (preg_match(self::NAME, $resource) && !preg_match(self::NO_NAME, $resource)) {
            return $resource;
        }
        $name = preg_replace_callback('~[^A-Za-z0-9._:@-]~', static fn (array $byte): string => sprintf('~%02x', \ord($byte[0])), $resource);
        $name = \in_array($name, ['', '.', '..'], true) ? '~'.$name : (string) $name;

        return 200 >= \strlen($name) ? $name : substr($name, 0, 130).':'.hash('sha256', $resource);
    }

    private static function random(): string
    {
        return rtrim(strtr(base64_encode(random_bytes(18)), '+/', '-_'), '=');
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
